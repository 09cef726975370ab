"""Colours of a memory picture, and the terms that each stands for."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from playbook.tables import TERMS

GROUPS: Mapping[str, tuple[str, ...]] = {
    "parameters": ("parameters",),
    "optimizer": ("optimizer", "master_weights"),
    "gradients": ("gradients",),
    "activations": ("activations", "kv_cache"),
    "unsharded": ("unsharded",),
    "temporary": ("temporary", "workspace"),
    "communication": ("communication_buffers",),
    "logits": ("logits",),
}
"""Colours of a picture from the axis up, and the terms each stands for."""
STATE = ("parameters", "gradients", "optimizer", "master_weights")
"""Terms of model state, as recipes count it."""
LEVELS = 65535
"""A level is sent as a part of the highest one, in so many steps."""


def group_bytes(terms: Mapping[str, float]) -> dict[str, float]:
    """Bytes by colour of a picture from bytes by term.

    What lies outside the allocator's hands is left out.
    """
    return {group: sum(terms.get(term, 0) for term in members) for group, members in GROUPS.items()}


def grouped_levels(levels: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sum levels of terms (points × `TERMS`) to levels of colours (points × `GROUPS`)."""
    return np.stack(
        [levels[:, [TERMS.index(term) for term in members]].sum(axis=1) for members in GROUPS.values()],
        axis=1,
    )
