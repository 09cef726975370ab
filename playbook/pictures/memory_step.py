"""One step over time: bytes by colour along the rank's operations, its phases, and the peak."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from playbook.pictures.memory_groups import GROUPS, LEVELS, group_bytes, grouped_levels
from playbook.pictures.memory_table import twin_source
from playbook.pictures.memory_words import instant_words, step_title
from playbook.pictures.words import amount, bare
from playbook.predict.orders import pipeline
from playbook.predict.stages import stage_numbers
from playbook.schedules.packed import unpack
from playbook.units import thousands

if TYPE_CHECKING:
    from playbook.pictures.memory_view import MemoryView

POINTS = 160
"""Points of the curve; the peak is one of them."""
MOST_SPANS = POINTS // 8
"""Stretches that the curve still tells apart."""
PHASES = {"F": "forward", "B": "backward", "O": "optimizer"}


def step_picture(view: MemoryView) -> dict[str, Any]:
    """Levels of the worst rank's step for a view, packed, with their words."""
    curve = view.memory.walk.curve(POINTS)
    levels = grouped_levels(curve.levels)
    highest = float(levels.max())
    names, owners = block_owners(curve.labels)
    peak = group_bytes(view.memory.walk.terms)
    return {
        "title": step_title(view),
        "terms": list(GROUPS),
        "highest": highest,
        "levels": np.rint(levels / highest * LEVELS).astype("<u2").tobytes() if highest else b"",
        "phases": "".join(curve.phases),
        "names": names,
        "owners": owners.astype("<i2").tobytes(),
        "spans": step_spans(view, curve.phases, curve.labels),
        "turns": turn_words(view),
        "peak": curve.peak_index,
        "peak_words": f"peak {amount(view.memory.peak_bytes)}: {instant_words(view.memory.instant)}",
        "at_peak": [bare(peak[group]) for group in GROUPS],
        **twin_mark(view),
    }


def twin_mark(view: MemoryView) -> dict[str, Any]:
    """The point of a recorded twin's peak; nothing without a twin."""
    if view.twin is None:
        return {}
    words = f"twin {amount(view.twin.peak_bytes)}"
    return {"twin": {"peak": view.twin.peak_bytes, "words": words, "source": twin_source(view.twin)}}


def block_owners(labels: Sequence[str]) -> tuple[list[str], NDArray[np.int64]]:
    """Blocks as numbers: a layer as itself, another as −1 − its place in the list of names."""
    names = sorted({label for label in labels if not label.startswith("layers.")})
    numbers = [
        int(label.split(".")[1]) if label.startswith("layers.") else -1 - names.index(label)
        for label in labels
    ]
    return names, np.array(numbers, dtype=np.int64)


def layer_ends(view: MemoryView) -> tuple[int, int]:
    """First and last layer of the rank whose step is drawn; twice 0 if it holds several stages."""
    s, rank = view.scenario, view.memory.worst_rank["pp"]
    mine = [slot for slot, owner in enumerate(pipeline(s).placement) if owner == rank]
    if len(mine) > 1:
        return 0, 0
    layers = stage_numbers(s, mine[0])
    return layers[0], layers[-1]


def step_spans(view: MemoryView, phases: Sequence[str], labels: Sequence[str]) -> list[list[Any]]:
    """Stretches of the curve; none where it is too coarse to have each of them."""
    count = view.scenario.microbatches
    if count > MOST_SPANS // 2 and len(stretches(view)) > MOST_SPANS:
        return []
    return spans(phases, labels, layer_ends(view) if count == 1 else (0, 0))


def stretches(view: MemoryView) -> str:
    """Stretches of forwards (F) and of backwards (B, in two parts I) of the rank whose step is drawn."""
    s = view.scenario
    if s.layout.stages == 1:
        return "FB" * s.microbatches
    kinds = unpack(pipeline(s).packed[view.memory.worst_rank["pp"]])[1]
    letters = np.array(["F", "B", "I", "I"])[kinds]
    return "".join(letters[np.append(True, letters[1:] != letters[:-1])])


def spans(phases: Sequence[str], labels: Sequence[str], ends: tuple[int, int]) -> list[list[Any]]:
    """Words, first and last point of each stretch of one phase.

    Recompute and both parts of a split backward count as backward.
    """
    found: list[tuple[str, int, int]] = []
    for place, phase in enumerate(phases):
        kind = "B" if phase in "RIW" else phase
        if found and found[-1][0] == kind:
            found[-1] = (kind, found[-1][1], place)
        else:
            found.append((kind, place, place))
    return [
        [PHASES.get(kind, kind) + layer_words(kind, labels[first : last + 1], ends), first, last]
        for kind, first, last in found
    ]


def layer_words(kind: str, labels: Sequence[str], ends: tuple[int, int]) -> str:
    """Layers that a stretch goes through, in its order: the curve is thinned and may leave out an end."""
    if ends[0] == ends[1] or sum(label.startswith("layers.") for label in labels) < 2:
        return ""
    first, last = ends if kind == "F" else ends[::-1]
    return f", layer {first} → {last}"


def turn_words(view: MemoryView) -> str:
    """What stands under a step of several micro-batches, whose stretches are too short for words."""
    count, found = view.scenario.microbatches, stretches(view)
    if count == 1:
        return ""
    several = f"{thousands(count)} micro-batches"
    if found == "FB":
        return f"forward of all {several}, then backward"
    if "I" in found:
        return f"forward and both parts of backward of {several} in turn"
    return f"forward and backward of {several} in turn"
