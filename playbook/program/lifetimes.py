"""Where every tensor of a step is born and dies: the ends that its stage's layout gives, at the places of
runs."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from playbook.program.lay import Stage, Tensors, joined, widest
from playbook.program.order import (
    BACKWARD,
    COPIES,
    FORWARD,
    INPUT,
    ONCE,
    SEGMENTS,
    STATE,
    STEP,
    WEIGHT,
    Flags,
    Ints,
    Run,
    Turn,
    runs_in_turn,
    turns,
)
from playbook.program.step import Held


class Placed(NamedTuple):
    """A run's first row, and which of its stage's runs it is."""

    start: int
    turn: Turn


class Lifetimes:
    """Where every run of a rank's order starts, and from that where every tensor lives."""

    def __init__(self, stages: Mapping[int, Stage], order: Sequence[Run]) -> None:
        self.stages, self.order = stages, tuple(order)
        self.kept: dict[tuple[int, str, Turn], Ints] = {}
        self.placed: dict[Run, Placed] = {}
        self.step_start: dict[int, int] = {}
        self.widest = tuple(stages)[widest(tuple(stages.values()))]
        self.runs: dict[int, list[Run]] = {number: [] for number in stages}
        self.total = self._place()

    def _place(self) -> int:
        row = 0
        alternate = any(stage.alternates for stage in self.stages.values())
        for run, turn in zip(self.order, turns(self.order, alternate), strict=True):
            key = (run.stage, run.segment, turn)
            if key not in self.kept:
                self.kept[key] = self.stages[run.stage].kept(run.segment, turn)
            self.placed[run] = Placed(row, turn)
            self.runs[run.stage].append(run)
            row += len(self.kept[key])
        for number, stage in self.stages.items():
            self.step_start[number] = row
            row += len(stage.rows["O"]) - (len(self.step_start) > 1)
        return row

    def held(self) -> Held:
        """Tensors of the whole step."""
        parts: list[tuple[Ints, Ints, Ints]] = []
        offset = 0
        for number, stage in self.stages.items():
            parts.append(self._once(number, offset))
            parts += self._each(number, offset)
            offset += len(stage.templates)
        birth, death, template = (joined(list(column)) for column in zip(*parts, strict=True))
        return Held(birth=birth, death=death, template=template)

    def _once(self, number: int, offset: int) -> tuple[Ints, Ints, Ints]:
        """Tensors that live once a step: born in the first run of their segment, gone in the last."""
        tensors = self.stages[number].tensors
        index = np.flatnonzero(once(tensors))
        birth = np.zeros(len(index), dtype=np.int64)
        death = np.full(len(index), self.total, dtype=np.int64)
        for ends, segments, is_birth in (
            (birth, tensors.birth_segment[index], True),
            (death, tensors.death_segment[index], False),
        ):
            for segment in (FORWARD, BACKWARD, STEP, COPIES):
                mine = np.flatnonzero(segments == segment)
                if len(mine):
                    ends[mine] = self._at(number, segment, index[mine], is_birth)
        return birth, death, tensors.template[index] + offset

    def _at(self, number: int, segment: int, index: Ints, birth: bool) -> Ints:
        """Rows at which tensors of the step are born, or die, in a segment."""
        stage = self.stages[number]
        row = ends_of(stage.tensors, birth)[1][index]
        if segment == STEP:
            return self._step_rows(number, row)
        if segment in (FORWARD, COPIES) or not self._splits(number):
            return self._in_run(self._end_of(number, SEGMENTS[segment], birth), row, birth)
        result = np.empty(len(index), dtype=np.int64)
        part, row_there = (column[index] for column in ends_of(stage.aligned, birth))
        for code_there in (INPUT, WEIGHT):
            mine = part == code_there
            run = self._end_of(number, "B" + SEGMENTS[code_there], birth)
            result[mine] = self._in_run(run, (row if run.segment == "B" else row_there)[mine], birth)
        return result

    def _splits(self, number: int) -> bool:
        return any(run.segment == "I" for run in self.runs[number])

    def _end_of(self, number: int, letters: str, first: bool) -> Run:
        """The first or last run of a stage among those of some segments."""
        runs = self.runs[number] if first else reversed(self.runs[number])
        return next(run for run in runs if run.segment in letters)

    def _in_run(self, run: Run, row: Ints, birth: bool) -> Ints:
        return self.placed[run].start + self._compressed(run, row, birth)

    def _step_rows(self, number: int, row: Ints) -> Ints:
        """Rows of the optimizer segment; the optimizer itself is one row for all stages of the rank, and −1
        the row before it."""
        before = min(self.step_start.values())
        lead = 1 if self.step_start[number] > before else 0
        return np.where(row <= 0, before + row, self.step_start[number] + row - lead)

    def _compressed(self, run: Run, row: Ints, birth: bool) -> Ints:
        """Place of a row among the kept ones; a row that is left out stands for the next one, or the one
        before."""
        kept = self.kept[run.stage, run.segment, self.placed[run].turn]
        if len(kept) == len(self.stages[run.stage].segment(run.segment)):
            return row
        place = np.searchsorted(kept, row, side="left" if birth else "right")
        return np.clip(place if birth else place - 1, 0, max(len(kept) - 1, 0))

    def _each(self, number: int, offset: int) -> list[tuple[Ints, Ints, Ints]]:
        """Tensors that live once a micro-batch, all micro-batches with equal rows at once."""
        alike: dict[tuple[Turn, ...], list[tuple[Run, ...]]] = {}
        for forward in self.runs[number]:
            if forward.segment == "F":
                trip = self._trip(forward)
                alike.setdefault(tuple(self.placed[run].turn for run in trip), []).append(trip)
        return [self._alike(number, trips, offset) for trips in alike.values()]

    def _trip(self, forward: Run) -> tuple[Run, ...]:
        """A micro-batch's forward and backward, in one or in two parts."""
        backward = forward._replace(segment="B")
        if backward in self.placed:
            return forward, backward
        return forward, forward._replace(segment="I"), forward._replace(segment="W")

    def _alike(self, number: int, trips: list[tuple[Run, ...]], offset: int) -> tuple[Ints, Ints, Ints]:
        stage, example = self.stages[number], trips[0]
        tensors = stage.tensors_of(example[-1].segment)
        index = np.flatnonzero(~once(tensors) & (~tensors.alone | (number == self.widest)))
        index = index[self._alive(stage, tensors, index, example)]
        starts = np.array([[self.placed[run].start for run in trip] for trip in trips], dtype=np.int64)
        found = []
        for birth in (True, False):
            segments, rows = (column[index] for column in ends_of(tensors, birth))
            end = np.full((len(trips), len(index)), self.total, dtype=np.int64)
            for place, run in enumerate(example):
                mine = np.flatnonzero(segments == SEGMENTS.index(run.segment))
                end[:, mine] = starts[:, place : place + 1] + self._compressed(run, rows[mine], birth)
            mine = np.flatnonzero(segments == STEP)
            end[:, mine] = self._step_rows(number, rows[mine])
            if not birth and stage.alternates:
                self._cross(number, trips, tensors.forward_row[index], rows, end)
            found.append(end.ravel())
        return found[0], found[1], np.tile(tensors.template[index] + offset, len(trips))

    def _cross(
        self, number: int, trips: list[tuple[Run, ...]], forward_row: Ints, rows: Ints, end: Ints
    ) -> None:
        """Let tensors of backward go in the stage's next forward, or after its last backward."""
        mine = np.flatnonzero(forward_row >= 0)
        if not len(mine):
            return
        ends: dict[Run, Run] = {}
        until = self.runs[number][-1]
        for run in reversed(self.runs[number]):
            ends[run] = until
            until = run if run.segment == "F" else until
        for place, trip in enumerate(trips):
            until = ends[trip[1]]
            row = forward_row if until.segment == "F" else rows
            end[place, mine] = self._in_run(until, row[mine], birth=False)

    def _alive(self, stage: Stage, tensors: Tensors, index: Ints, trip: tuple[Run, ...]) -> Flags:
        """Which tensors there are in a micro-batch; one of the optimizer's segment is there once."""
        segment, when = tensors.birth_segment[index], tensors.when[index]
        alive = np.zeros(len(index), dtype=bool)
        for run in trip:
            turn, late = self.placed[run].turn, np.zeros(len(index), dtype=bool)
            if run.segment == "B" and not turn.alike:
                late = stage.aligned.birth_segment[index] == WEIGHT
            alive |= (segment == SEGMENTS.index(run.segment)) & runs_in_turn(when, late, turn)
        return alive | ((segment == STEP) & self.placed[trip[0]].turn.first)


def once(tensors: Tensors) -> Flags:
    """Which tensors live once a step."""
    return (tensors.when == ONCE) | (tensors.birth_segment == STATE)


def ends_of(tensors: Tensors, birth: bool) -> tuple[Ints, Ints]:
    """Segment and row of every birth, or of every death."""
    if birth:
        return tensors.birth_segment, tensors.birth_row
    return tensors.death_segment, tensors.death_row
