"""Order lists: which segment of which stage a rank runs for which micro-batch, one after the other."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

SEGMENTS = ("S", "F", "B", "O", "I", "W", "G")
WHEN = ("every", "first", "last", "later", "step", "sharded")
STATE, FORWARD, BACKWARD, STEP, INPUT, WEIGHT, COPIES = range(7)
EVERY, FIRST_ONE, LAST_ONE, LATER, ONCE, SHARDED = range(6)

RUNS = ("F", "B", "I", "W", "G")
"""Segments of an order list: forward, backward, its parts for inputs and for weights, and what comes once,
after the stage's last backward (the sum of gradients with its copy on another rank, or their reduction)."""

BACKWARDS = [RUNS.index(letter) for letter in "BIW"]
_AMONG_WEIGHTS, _AMONG_INPUTS = np.array([0, 1, 2, 1, 3]), np.array([0, 2, 2, 1, 3])


class Run(NamedTuple):
    """One entry of an order list: a segment (one of `RUNS`) of a stage for a micro-batch."""

    segment: str
    stage: int
    microbatch: int


class Turn(NamedTuple):
    """Whether a run is the first or the last of its stage: for what it does for weights, for all else.

    B and W together complete gradients of weights, B and I together pass gradients on. A stage may have both
    kinds of backward, so that a B can be the first of one and not of the other. `sharded` tells whether it
    does not follow a backward of its stage; it is told where a stage has rows or tensors of such runs only.
    """

    first: bool
    last: bool
    first_input: bool
    last_input: bool
    sharded: bool = True

    @property
    def alike(self) -> bool:
        """Whether it is the same turn for weights and for all else."""
        return (self.first, self.last) == (self.first_input, self.last_input)


ONLY = Turn(True, True, True, True)
"""The turn of a stage's only micro-batch."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Columns:
    """An order list as arrays.

    Parameters
    ----------
    segment
        Index into `RUNS`.
    stage, microbatch
        As of `Run`.
    """

    segment: Ints
    stage: Ints
    microbatch: Ints

    @classmethod
    def of(cls, order: Sequence[Run]) -> "Columns":
        """Take a list of runs apart."""
        table = [(RUNS.index(run.segment), run.stage, run.microbatch) for run in order]
        segment, stage, microbatch = np.array(table, dtype=np.int64).reshape(-1, 3).T
        return cls(segment=segment, stage=stage, microbatch=microbatch)

    def turns(self) -> NDArray[np.bool_]:
        """Turn of each run: four columns, as the fields of `Turn`."""
        weights = ends(self.stage * len(RUNS) + _AMONG_WEIGHTS[self.segment])
        if not (self.segment == RUNS.index("I")).any():
            return np.stack((*weights, *weights), axis=1)
        inputs = ends(self.stage * len(RUNS) + _AMONG_INPUTS[self.segment])
        for_inputs, for_weights = (self.segment == RUNS.index(letter) for letter in "IW")
        pairs = list(zip(weights, inputs, strict=True))
        own = (np.where(for_inputs, other, mine) for mine, other in pairs)
        through = (np.where(for_weights, mine, other) for mine, other in pairs)
        return np.stack((*own, *through), axis=1)

    def sharded(self) -> Flags:
        """Tell of each run whether the one before it on its stage is not a backward."""
        order = np.argsort(self.stage, kind="stable")
        stage, segment = self.stage[order], self.segment[order]
        behind = np.zeros(len(order), dtype=bool)
        behind[1:] = (stage[1:] == stage[:-1]) & np.isin(segment[:-1], BACKWARDS)
        result = np.ones(len(order), dtype=bool)
        result[order] = ~behind
        return result


def ends(group: Ints) -> tuple[Flags, Flags]:
    """Tell of each element whether it is the first and the last of its group.

    Examples
    --------
    >>> [flags.tolist() for flags in ends(np.array([7, 3, 7]))]
    [[True, True, False], [False, True, True]]
    """
    first, last = np.zeros(len(group), dtype=bool), np.zeros(len(group), dtype=bool)
    first[np.unique(group, return_index=True)[1]] = True
    last[len(group) - 1 - np.unique(group[::-1], return_index=True)[1]] = True
    return first, last


def accumulate(microbatches: int, stage: int = 0) -> tuple[Run, ...]:
    """Order without a pipeline: forward and backward of one micro-batch after the other.

    Examples
    --------
    >>> [f"{run.segment}{run.microbatch}" for run in accumulate(2)]
    ['F0', 'B0', 'F1', 'B1']
    """
    return tuple(Run(segment, stage, mb) for mb in range(microbatches) for segment in "FB")


def turns(order: Sequence[Run], alternate: bool = False) -> list[Turn]:
    """Turn of each run; `alternate` is whether some stage has rows or tensors of "sharded" runs only."""
    columns = Columns.of(order)
    found = [Turn(*row) for row in columns.turns().tolist()]
    if not alternate:
        return found
    return [turn._replace(sharded=flag) for turn, flag in zip(found, columns.sharded().tolist(), strict=True)]


def flags(order: Sequence[Run]) -> list[tuple[bool, bool]]:
    """Tell of each run whether it is the first and the last of its stage: F alone, I with B, W with B."""
    return [(turn.first, turn.last) for turn in turns(order)]


def runs_now(when: Ints, first: bool, last: bool, sharded: bool = True) -> Flags:
    """Tell which rows run in a micro-batch that is or is not the first, the last, or behind a backward."""
    keep = when == EVERY
    if sharded:
        keep |= when == SHARDED
    if first:
        keep |= when == FIRST_ONE
    else:
        keep |= when == LATER
    if last:
        keep |= when == LAST_ONE
    return keep


def runs_in_turn(when: Ints, late: Flags, turn: Turn) -> Flags:
    """Tell which rows run in a turn; `late` are those for weights."""
    keep = runs_now(when, turn.first, turn.last, turn.sharded)
    if turn.alike:
        return keep
    return np.where(late, keep, runs_now(when, turn.first_input, turn.last_input, turn.sharded))
