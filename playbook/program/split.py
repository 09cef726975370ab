"""Backward in two parts: I makes gradients of inputs, W those of weights (Qi et al., Zero Bubble Pipeline
Parallelism, 2023, section 2, where they are called B and W).

Each row of backward belongs to one of them (`Op.for_weights`), in the order of backward, or in W in that of
`Op.turn`; recomputed rows run in I, which needs what they bring back first. Collectives that carry gradients
of inputs stay in I, reductions of gradients of weights move to W. What W reads lives until its row there: a
product's saved input, and the gradient of its output, which is born in I. The rest dies in I.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from playbook.program.block import Tensor
from playbook.program.ids import PHASES
from playbook.program.op import END, START, W_END, At
from playbook.program.order import BACKWARD, INPUT, SEGMENTS, WEIGHT, Ints
from playbook.program.segment import Rows, SegmentRows, asked_blocks

Mask = NDArray[np.bool_]
LETTERS = {"I": INPUT, "W": WEIGHT}


class Split:
    """Which rows of a stage's backward run in I and in W.

    Parameters
    ----------
    backward, rows
        The segment B of a stage, and its rows.
    step
        The segment O.
    """

    def __init__(self, backward: SegmentRows, rows: Rows, step: SegmentRows) -> None:
        self.backward, self.whole, self.step = backward, rows, step
        self.late: Mask = rows.for_weights.astype(bool)
        self.kept = {INPUT: np.flatnonzero(~self.late), WEIGHT: self._in_turn(np.flatnonzero(self.late))}
        begin = np.concatenate(([0], np.cumsum(~self.late)))
        start, length = backward.start, backward.lengths[backward.host_of]
        self.passes: Mask = begin[start + length] > begin[start]
        """Of each block, whether it has rows in I."""

    def _in_turn(self, late: Ints) -> Ints:
        """Rows of W in the order in which it runs them; one without a turn follows the one before it."""
        turn = self.backward.column(lambda op: op.turn)[late]
        if not turn.any():
            return late
        turn = turn[np.maximum.accumulate(np.where(turn > 0, np.arange(len(turn)), 0))]
        return late[np.lexsort((late, turn, self.backward.block_of_row[late]))]

    def rows(self, letter: str) -> Rows:
        """Rows of I or W, in order of issue."""
        kept, back = self.kept[LETTERS[letter]], PHASES.index("B")
        columns = {name: getattr(self.whole, name)[kept] for name in Rows.__dataclass_fields__}
        phase = np.where(columns["phase"] == back, PHASES.index(letter), columns["phase"])
        return replace(Rows(**columns), phase=phase)

    def late_of(self, at: At, instances: Ints, row: Ints) -> Mask:
        """Tell of a place in backward, as seen from several blocks, whether it lies in W."""
        if at.segment in LETTERS:
            return np.full(len(row), at.segment == "W")
        found = self.late[row]
        if at.row in (START, END):
            last = len(self.passes) - 1
            asked = asked_blocks(at, instances, last)
            inside = (asked >= 0) & (asked <= last)
            found = inside & ~self.passes[np.clip(asked, 0, last)]
        return found

    def ends(self, late: Mask, row: Ints, *, birth: bool) -> tuple[Ints, Ints]:
        """Segment and row there of places in backward: the row itself or the part's next, for a death the
        one before."""
        if not len(self.kept[WEIGHT]):
            late = np.zeros_like(late)
        if not len(self.kept[INPUT]):
            late = np.ones_like(late)
        place = np.zeros(len(row), dtype=np.int64)
        for part, mine in ((INPUT, ~late), (WEIGHT, late)):
            kept = self.kept[part]
            order = np.argsort(kept)
            found = np.searchsorted(kept[order], row[mine], side="left" if birth else "right") - (not birth)
            place[mine] = order[np.clip(found, 0, max(len(kept) - 1, 0))] if len(kept) else 0
        return np.where(late, WEIGHT, INPUT), place


def split_ends(
    split: Split,
    templates: Sequence[Tensor],
    spread: Sequence[Ints],
    born: tuple[Ints, Ints],
    dead: tuple[Ints, Ints],
) -> tuple[Ints, Ints, Ints, Ints]:
    """Where tensors are born and die if backward runs in two parts.

    Parameters
    ----------
    split
        Of the stage.
    templates, spread
        Tensor templates, and the blocks that hold each.
    born, dead
        Segment and row of every tensor's birth and death with backward in one; a death in W that is another
        place is put in here.

    Returns
    -------
    tuple
        Segment and row of births, segment and row of deaths.
    """
    late_birth, late_death = np.zeros(len(born[0]), dtype=bool), np.zeros(len(born[0]), dtype=bool)
    segment, row = dead[0].copy(), dead[1].copy()
    begin = 0
    for tensor, instances in zip(templates, spread, strict=True):
        mine = slice(begin, begin + len(instances))
        begin = mine.stop
        death = tensor.weight_end or tensor.death
        if tensor.weight_end:
            rows = split.step if tensor.weight_end.segment == "O" else split.backward
            segment[mine] = SEGMENTS.index(rows.letter)
            row[mine] = rows.place(tensor.weight_end, instances)
        if death == W_END and len(split.kept[WEIGHT]):
            row[mine] = split.kept[WEIGHT][-1]
        if tensor.birth.segment in "BIW":
            late_birth[mine] = split.late_of(tensor.birth, instances, born[1][mine])
        if death and death.segment in "BIW":
            late_death[mine] = split.late_of(death, instances, row[mine])
    births, deaths = born[0] == BACKWARD, segment == BACKWARD
    late_death |= late_birth & births  # born in W: gone there
    first, last = (born[0].copy(), born[1].copy()), (segment, row)
    first[0][births], first[1][births] = split.ends(late_birth[births], born[1][births], birth=True)
    last[0][deaths], last[1][deaths] = split.ends(late_death[deaths], row[deaths], birth=False)
    same = births & deaths & (first[0] == last[0])
    last[1][same] = np.maximum(last[1][same], first[1][same])
    return *first, *last
