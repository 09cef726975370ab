"""Lay stages along an order list: one rank's program, by array broadcasting over layers and micro-batches."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from playbook.program.block import Tensor
from playbook.program.lay import SEGMENTS, WHEN, Ints, Rows, Stage
from playbook.program.step import Held, Program

FIELDS = tuple(Rows.__dataclass_fields__)
STATE, FORWARD, BACKWARD, STEP = range(4)


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


class Placed(NamedTuple):
    """A segment of the order: its first row, and which rows of the stage's segment it keeps."""

    start: int
    first: bool
    last: bool


def runs_now(when: Ints, first: bool, last: bool) -> NDArray[np.bool_]:
    """Tell which rows run in a micro-batch that is or is not the first, the last."""
    keep = when == WHEN.index("every")
    keep |= (when == WHEN.index("first")) & first
    keep |= (when == WHEN.index("last")) & last
    keep |= (when == WHEN.index("later")) & (not first)
    return keep


def flags(order: Sequence[Run]) -> list[tuple[bool, bool]]:
    """Tell of each run whether it is the first and the last of its segment and stage."""
    ends: dict[tuple[str, int], list[int]] = {}
    for index, run in enumerate(order):
        ends.setdefault((run.segment, run.stage), [index, index])[1] = index
    spans = (ends[run.segment, run.stage] for run in order)
    return [(index == first, index == last) for index, (first, last) in enumerate(spans)]


class Assembly:
    """The work of `assemble`: where every segment starts, and from that where every tensor lives."""

    def __init__(self, stages: Mapping[int, Stage], order: Sequence[Run]) -> None:
        self.stages, self.order = stages, tuple(order)
        self.kept: dict[tuple[int, str, bool, bool], Ints] = {}
        self.placed: dict[tuple[str, int, int], Placed] = {}
        self.step_start: dict[int, int] = {}
        self.total = self._place()

    def _place(self) -> int:
        row = 0
        for run, (first, last) in zip(self.order, flags(self.order), strict=True):
            key = (run.stage, run.segment, first, last)
            if key not in self.kept:
                when = self.stages[run.stage].rows[run.segment].when
                self.kept[key] = np.flatnonzero(runs_now(when, first, last))
            self.placed[run.segment, run.stage, run.microbatch] = Placed(row, first, last)
            row += len(self.kept[key])
        for number, stage in self.stages.items():
            self.step_start[number] = row
            row += len(stage.rows["O"]) - (len(self.step_start) > 1)
        return row

    def rows(self) -> tuple[Rows, Ints, tuple[tuple[str, ...], ...]]:
        """Rows of the whole step, the micro-batch of each, and the names that they index."""
        bank, offsets, names = self._bank()
        parts, microbatches = [], []
        for run in self.order:
            placed = self.placed[run.segment, run.stage, run.microbatch]
            kept = self.kept[run.stage, run.segment, placed.first, placed.last]
            parts.append(kept + offsets[run.stage, run.segment])
            microbatches.append((run.microbatch, len(kept)))
        for place, (number, stage) in enumerate(self.stages.items()):
            lead = 1 if place else 0
            steps = np.arange(lead, len(stage.rows["O"]))
            parts.append(steps + offsets[number, "O"])
            microbatches.append((-1, len(steps)))
        index = np.concatenate(parts)
        columns = {field: bank[field][index] for field in FIELDS}
        values, counts = zip(*microbatches, strict=True)
        return Rows(**columns), np.repeat(np.array(values), np.array(counts)), names

    def _bank(self) -> tuple[dict[str, np.ndarray], dict[tuple[int, str], int], tuple[tuple[str, ...], ...]]:
        """Rows of all stages one after the other, their names merged."""
        merged: tuple[dict[str, int], ...] = ({}, {}, {})
        columns: dict[str, list[np.ndarray]] = {field: [] for field in FIELDS}
        offsets, at = {}, 0
        for number, stage in self.stages.items():
            segments = stage.rows
            maps = [
                np.array([table.setdefault(text, len(table)) for text in names], dtype=np.int64)
                for table, names in zip(merged, (stage.owners, stage.ops, stage.streams), strict=True)
            ]
            for letter, rows in segments.items():
                offsets[number, letter] = at
                at += len(rows)
                for field in FIELDS:
                    column = getattr(rows, field)
                    if field in ("owner", "op", "stream"):
                        column = maps[("owner", "op", "stream").index(field)][column]
                    columns[field].append(column)
        bank = {field: np.concatenate(parts) for field, parts in columns.items()}
        return bank, offsets, tuple(tuple(table) for table in merged)

    def held(self) -> tuple[Held, tuple[Tensor, ...]]:
        """Tensors of the whole step."""
        parts: list[tuple[Ints, ...]] = []
        templates: list[Tensor] = []
        for number in self.stages:
            parts += self._held(number, len(templates))
            templates += self.stages[number].templates
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        return Held(**dict(zip(Held.__dataclass_fields__, columns, strict=True))), tuple(templates)

    def _held(self, number: int, offset: int) -> list[tuple[Ints, ...]]:
        stage = self.stages[number]
        tensors = stage.tensors
        once = (tensors.when == WHEN.index("step")) | (tensors.birth_segment == STATE)
        parts = [self._held_once(number, np.flatnonzero(once), offset)]
        if not once.all():
            parts.append(self._held_each(number, np.flatnonzero(~once), offset))
        return parts

    def _held_once(self, number: int, index: Ints, offset: int) -> tuple[Ints, ...]:
        """Tensors that live once a step: born in the first run of their segment, gone in the last."""
        tensors = self.stages[number].tensors
        birth = np.zeros(len(index), dtype=np.int64)
        death = np.full(len(index), self.total, dtype=np.int64)
        for code in (FORWARD, BACKWARD, STEP):
            mine = tensors.birth_segment[index] == code
            if mine.any():
                birth[mine] = self._rows_of(
                    number, code, tensors.birth_row[index][mine], first=True, birth=True
                )
            mine = tensors.death_segment[index] == code
            if mine.any():
                death[mine] = self._rows_of(
                    number, code, tensors.death_row[index][mine], first=False, birth=False
                )
        return birth, death, tensors.size[index], tensors.term[index], tensors.template[index] + offset

    def _rows_of(self, number: int, code: int, row: Ints, first: bool, birth: bool) -> Ints:
        if code == STEP:
            return self._step_rows(number, row)
        runs = self._runs(number, SEGMENTS[code])
        placed = self.placed[SEGMENTS[code], number, runs[0 if first else -1]]
        return placed.start + self._compressed(number, SEGMENTS[code], placed, row, birth)

    def _step_rows(self, number: int, row: Ints) -> Ints:
        """Rows of the optimizer segment; the optimizer itself is one row for all stages of the rank."""
        before = min(self.step_start.values())
        lead = 1 if self.step_start[number] > before else 0
        return np.where(row == 0, before, self.step_start[number] + row - lead)

    def _runs(self, number: int, segment: str) -> list[int]:
        return [run.microbatch for run in self.order if run.stage == number and run.segment == segment]

    def _compressed(self, number: int, segment: str, placed: Placed, row: Ints, birth: bool) -> Ints:
        """Place of a row among the kept ones; a row that is left out stands for the next one, or the one
        before."""
        kept = self.kept[number, segment, placed.first, placed.last]
        if len(kept) == len(self.stages[number].rows[segment]):
            return row
        place = np.searchsorted(kept, row, side="left" if birth else "right")
        return np.clip(place if birth else place - 1, 0, max(len(kept) - 1, 0))

    def _held_each(self, number: int, index: Ints, offset: int) -> tuple[Ints, ...]:
        """Tensors that live once a micro-batch."""
        tensors = self.stages[number].tensors
        runs = self._runs(number, "F")
        births, deaths, alive = [], [], []
        for mb in runs:
            births.append(self._ends(number, index, mb, tensors.birth_segment, tensors.birth_row, birth=True))
            deaths.append(
                self._ends(number, index, mb, tensors.death_segment, tensors.death_row, birth=False)
            )
            alive.append(self._alive(number, index, mb))
        keep = np.concatenate(alive)
        again = np.tile(index, len(runs))[keep]
        columns = (tensors.size[again], tensors.term[again], tensors.template[again] + offset)
        return np.concatenate(births)[keep], np.concatenate(deaths)[keep], *columns

    def _ends(self, number: int, index: Ints, mb: int, segment: Ints, row: Ints, *, birth: bool) -> Ints:
        result = np.full(len(index), self.total, dtype=np.int64)
        for code in (FORWARD, BACKWARD):
            mine = segment[index] == code
            placed = self.placed[SEGMENTS[code], number, mb]
            result[mine] = placed.start + self._compressed(
                number, SEGMENTS[code], placed, row[index][mine], birth
            )
        mine = segment[index] == STEP
        result[mine] = self._step_rows(number, row[index][mine])
        return result

    def _alive(self, number: int, index: Ints, mb: int) -> NDArray[np.bool_]:
        tensors = self.stages[number].tensors
        alive = np.zeros(len(index), dtype=bool)
        for code in (FORWARD, BACKWARD):
            mine = tensors.birth_segment[index] == code
            placed = self.placed[SEGMENTS[code], number, mb]
            alive[mine] = runs_now(tensors.when[index][mine], placed.first, placed.last)
        alive[tensors.birth_segment[index] == STEP] = mb == self._runs(number, "F")[0]
        return alive


def assemble(
    stages: Mapping[int, Stage],
    order: Sequence[Run],
    *,
    scenario: str = "",
    rank: int = 0,
    axes: Mapping[str, int] | None = None,
) -> Program:
    """Lay one rank's stages along its order list.

    Parameters
    ----------
    stages
        The rank's stages by number.
    order
        Forward and backward runs in the order in which the rank issues them; the optimizer step follows.
    scenario, rank, axes
        Name and rank for the tables; ranks on each mesh axis.
    """
    work = Assembly(stages, order)
    rows, microbatch, (owners, ops, streams) = work.rows()
    held, templates = work.held()
    return Program(
        scenario=scenario,
        rank=rank,
        rows=rows,
        microbatch=microbatch,
        owners=owners,
        ops=ops,
        streams=streams,
        held=held,
        templates=templates,
        stages=dict(stages),
        axes=dict(axes or {}),
    )
