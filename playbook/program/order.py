"""Order lists: which segment of which stage a rank runs for which micro-batch, one after the other."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

SEGMENTS = ("S", "F", "B", "O", "I", "W")
WHEN = ("every", "first", "last", "later", "step")
STATE, FORWARD, BACKWARD, STEP, INPUT, WEIGHT = range(6)
EVERY, FIRST_ONE, LAST_ONE, LATER, ONCE = range(5)


class Run(NamedTuple):
    """One entry of an order list: a segment (F or B) of a stage for a micro-batch."""

    segment: str
    stage: int
    microbatch: int


def accumulate(microbatches: int, stage: int = 0) -> tuple[Run, ...]:
    """Order without a pipeline: forward and backward of one micro-batch after the other.

    Examples
    --------
    >>> [f"{run.segment}{run.microbatch}" for run in accumulate(2)]
    ['F0', 'B0', 'F1', 'B1']
    """
    return tuple(Run(segment, stage, mb) for mb in range(microbatches) for segment in "FB")


def flags(order: Sequence[Run]) -> list[tuple[bool, bool]]:
    """Tell of each run whether it is the first and the last of its segment and stage."""
    ends: dict[tuple[str, int], list[int]] = {}
    for index, (segment, stage, _) in enumerate(order):
        ends.setdefault((segment, stage), [index, index])[1] = index
    spans = [ends[segment, stage] for segment, stage, _ in order]
    return [(index == first, index == last) for index, (first, last) in enumerate(spans)]


def runs_now(when: Ints, first: bool, last: bool) -> NDArray[np.bool_]:
    """Tell which rows run in a micro-batch that is or is not the first, the last."""
    keep = when == EVERY
    if first:
        keep |= when == FIRST_ONE
    else:
        keep |= when == LATER
    if last:
        keep |= when == LAST_ONE
    return keep
