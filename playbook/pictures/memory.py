"""Training memory on one GPU.

State under each ZeRO stage, and one step over time, against what the driver reports.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from playbook.pictures.memory_groups import GROUPS, LEVELS, group_bytes, grouped_levels
from playbook.pictures.memory_stages import stages_picture
from playbook.pictures.memory_view import MemoryView
from playbook.pictures.memory_warnings import warnings
from playbook.pictures.memory_words import (
    bar_words,
    headline,
    instant_words,
    layout_words,
    step_title,
    table_rows,
)
from playbook.pictures.words import amount, bare
from playbook.predict import ZeroState
from playbook.units import gb

if TYPE_CHECKING:
    from playbook.pictures.memory_run import MeasuredMemory


def memory_picture(view: MemoryView, measured: MeasuredMemory | None = None) -> dict[str, Any]:
    """Picture data of one scenario.

    Parameters
    ----------
    view
        What `memory_view` made.
    measured
        Trace of this scenario and real step of a small one, as far as there are.
    """
    return {
        "kick": f"{view.model.name} · {layout_words(view.scenario.layout)} · training",
        "headline": headline(view),
        "bars": _bars(view),
        "step": _step(view),
        "stages": stages_picture(view.scenario, view.stages),
        "passes": _passes(view),
        "warnings": warnings(view.memory, view.states),
        "table": table_rows(view, measured),
        "foot": "GB = 10⁹ bytes · capacity: what the driver reports",
    }


def _passes(view: MemoryView) -> dict[str, Any]:
    return {
        "title": [
            "One layer, before and after",
            "what each pass adds, and the layer's state, what its forward keeps, its largest buffer",
        ],
        "head": ["pass", "operations it adds", "state", "kept", "for a moment"],
        "rows": [step.row for step in view.passes],
    }


def _bars(view: MemoryView) -> dict[str, Any]:
    recipe = view.scenario.recipe
    optimizer = "optimizer with master weights" if recipe.master_bytes else "optimizer"
    rule = (
        f"parameters {recipe.parameter_bytes} B, gradients {recipe.gradient_bytes} B, "
        f"{optimizer} {recipe.optimizer_bytes} B per parameter"
    )
    gpu = view.scenario.cluster.gpu
    return {
        "title": [f"Model state per rank, {layout_words(view.scenario.layout)}", rule],
        "capacity": gpu.memory_bytes,
        "capacity_words": f"{gpu.name.upper()} {gb(gpu.memory_bytes)}",
        "rows": [_bar(state, view) for state in view.states],
        "chosen": view.zero,
    }


def _bar(state: ZeroState, view: MemoryView) -> dict[str, Any]:
    return {
        **bar_words(state, view.capacity_bytes),
        "copied": _parts(state.copied),
        "shared": _parts(state.shared),
        "total": state.total_bytes,
    }


def _parts(terms: Mapping[str, int]) -> list[list[Any]]:
    """Colour, bytes and their text, in the order of a bar: parameters, gradients, optimizer."""
    grouped = group_bytes(terms)
    return [
        [name, size, bare(size)]
        for name in ("parameters", "gradients", "optimizer")
        if (size := grouped[name])
    ]


def _step(view: MemoryView) -> dict[str, Any]:
    curve = view.memory.walk.curve(160)
    levels = grouped_levels(curve.levels)
    highest = float(levels.max())
    names, owners = _owners(curve.labels)
    peak = group_bytes(view.memory.walk.terms)
    return {
        "title": step_title(view),
        "terms": list(GROUPS),
        "highest": highest,
        "levels": np.rint(levels / highest * LEVELS).astype("<u2").tobytes() if highest else b"",
        "phases": "".join(curve.phases),
        "names": names,
        "owners": owners.astype("<i2").tobytes(),
        "spans": _spans(curve.phases, curve.labels),
        "peak": curve.peak_index,
        "peak_words": f"peak {amount(view.memory.peak_bytes)}: {instant_words(view.memory.instant)}",
        "at_peak": [bare(peak[group]) for group in GROUPS],
    }


def _owners(labels: Sequence[str]) -> tuple[list[str], NDArray[np.int64]]:
    """Blocks as numbers: a layer as itself, another as −1 − its place in the list of names."""
    names = sorted({label for label in labels if not label.startswith("layers.")})
    numbers = [
        int(label.split(".")[1]) if label.startswith("layers.") else -1 - names.index(label)
        for label in labels
    ]
    return names, np.array(numbers, dtype=np.int64)


def _spans(phases: Sequence[str], labels: Sequence[str]) -> list[list[Any]]:
    """Words, first and last point of each stretch of one phase; recompute counts as backward."""
    spans: list[tuple[str, int, int]] = []
    for place, phase in enumerate(phases):
        kind = "B" if phase == "R" else phase
        if spans and spans[-1][0] == kind:
            spans[-1] = (kind, spans[-1][1], place)
        else:
            spans.append((kind, place, place))
    words = {"F": "forward", "B": "backward", "O": "optimizer"}
    return [
        [words.get(kind, kind) + _layers(labels[first : last + 1]), first, last]
        for kind, first, last in spans
    ]


def _layers(labels: Sequence[str]) -> str:
    layers = [label.split(".")[1] for label in labels if label.startswith("layers.")]
    return f", layer {layers[0]} → {layers[-1]}" if layers and layers[0] != layers[-1] else ""
