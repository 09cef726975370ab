"""Lay stages along an order list: one rank's program, by array broadcasting over layers and micro-batches."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from playbook.program.lay import Stage, joined
from playbook.program.order import (
    BACKWARD,
    FORWARD,
    ONCE,
    SEGMENTS,
    STATE,
    STEP,
    Ints,
    Run,
    flags,
    runs_now,
)
from playbook.program.rates import Rates
from playbook.program.segment import Names, Rows, code
from playbook.program.step import Held, Program

NAMED = ("owner", "op", "stream")


class Placed(NamedTuple):
    """A run's first row, and whether it is the first and last of its segment and stage."""

    start: int
    first: bool
    last: bool


class Assembly:
    """The work of `assemble`: where every run starts, and from that where every tensor lives."""

    def __init__(self, stages: Mapping[int, Stage], order: Sequence[Run]) -> None:
        self.stages, self.order = stages, tuple(order)
        self.kept: dict[tuple[int, str, bool, bool], Ints] = {}
        self.placed: dict[Run, Placed] = {}
        self.step_start: dict[int, int] = {}
        self.total = self._place()

    def _place(self) -> int:
        row = 0
        for run, (first, last) in zip(self.order, flags(self.order), strict=True):
            key = (run.stage, run.segment, first, last)
            if key not in self.kept:
                when = self.stages[run.stage].rows[run.segment].when
                self.kept[key] = np.flatnonzero(runs_now(when, first, last))
            self.placed[run] = Placed(row, first, last)
            row += len(self.kept[key])
        for number, stage in self.stages.items():
            self.step_start[number] = row
            row += len(stage.rows["O"]) - (len(self.step_start) > 1)
        return row

    def rows(self) -> tuple[Ints, Ints]:
        """Index of every row of the step in `bank`'s rows, and its micro-batch."""
        offsets, parts, microbatches = self._offsets(), [], []
        for run in self.order:
            placed = self.placed[run]
            kept = self.kept[run.stage, run.segment, placed.first, placed.last]
            parts.append(kept + offsets[run.stage, run.segment])
            microbatches.append(run.microbatch)
        for place, (number, stage) in enumerate(self.stages.items()):
            parts.append(np.arange(1 if place else 0, len(stage.rows["O"])) + offsets[number, "O"])
            microbatches.append(-1)
        return joined(parts), np.repeat(np.array(microbatches), [len(part) for part in parts])

    def _offsets(self) -> dict[tuple[int, str], int]:
        offsets, at = {}, 0
        for number, stage in self.stages.items():
            for letter, rows in stage.rows.items():
                offsets[number, letter] = at
                at += len(rows)
        return offsets

    def bank(self) -> tuple[Rows, Names]:
        """Rows of all stages one behind the other, their names merged."""
        names, columns = Names.none(), {field: [] for field in Rows.__dataclass_fields__}
        for stage in self.stages.values():
            segments = tuple(stage.rows.values())
            merged = {
                field: np.array([code(mine, text) for text in theirs], dtype=np.int64)
                for field, mine, theirs in zip(NAMED, tables(names), tables(stage.names), strict=True)
            }
            for rows in segments:
                for field, parts in columns.items():
                    column = getattr(rows, field)
                    parts.append(merged[field][column] if field in merged else column)
        return Rows(**{field: joined(parts) for field, parts in columns.items()}), names

    def held(self) -> Held:
        """Tensors of the whole step."""
        parts: list[tuple[Ints, Ints, Ints]] = []
        offset = 0
        for number, stage in self.stages.items():
            once = (stage.tensors.when == ONCE) | (stage.tensors.birth_segment == STATE)
            parts.append(self._once(number, np.flatnonzero(once), offset))
            parts += self._each(number, np.flatnonzero(~once), offset)
            offset += len(stage.templates)
        birth, death, template = (joined(list(column)) for column in zip(*parts, strict=True))
        return Held(birth=birth, death=death, template=template)

    def _once(self, number: int, index: Ints, offset: int) -> tuple[Ints, Ints, Ints]:
        """Tensors that live once a step: born in the first run of their segment, gone in the last."""
        tensors = self.stages[number].tensors
        birth = np.zeros(len(index), dtype=np.int64)
        death = np.full(len(index), self.total, dtype=np.int64)
        for segment in (FORWARD, BACKWARD, STEP):
            mine = np.flatnonzero(tensors.birth_segment[index] == segment)
            birth[mine] = self._at(number, segment, 0, tensors.birth_row[index[mine]], birth=True)
            mine = np.flatnonzero(tensors.death_segment[index] == segment)
            death[mine] = self._at(number, segment, -1, tensors.death_row[index[mine]], birth=False)
        return birth, death, tensors.template[index] + offset

    def _at(self, number: int, segment: int, which: int, row: Ints, *, birth: bool) -> Ints:
        if segment == STEP:
            return self._step_rows(number, row)
        run = self._runs(number, SEGMENTS[segment])[which]
        placed = self.placed[run]
        return placed.start + self._compressed(run, placed, row, birth)

    def _step_rows(self, number: int, row: Ints) -> Ints:
        """Rows of the optimizer segment; the optimizer itself is one row for all stages of the rank."""
        before = min(self.step_start.values())
        lead = 1 if self.step_start[number] > before else 0
        return np.where(row == 0, before, self.step_start[number] + row - lead)

    def _runs(self, number: int, segment: str) -> list[Run]:
        return [run for run in self.order if run.stage == number and run.segment == segment]

    def _compressed(self, run: Run, placed: Placed, row: Ints, birth: bool) -> Ints:
        """Place of a row among the kept ones; a row that is left out stands for the next one, or the one
        before."""
        kept = self.kept[run.stage, run.segment, placed.first, placed.last]
        if len(kept) == len(self.stages[run.stage].rows[run.segment]):
            return row
        place = np.searchsorted(kept, row, side="left" if birth else "right")
        return np.clip(place if birth else place - 1, 0, max(len(kept) - 1, 0))

    def _each(self, number: int, index: Ints, offset: int) -> list[tuple[Ints, Ints, Ints]]:
        """Tensors that live once a micro-batch, all micro-batches with equal rows at once."""
        alike: dict[tuple[bool, ...], list[tuple[Run, Run]]] = {}
        for forward in self._runs(number, "F"):
            backward = forward._replace(segment="B")
            here, there = self.placed[forward], self.placed[backward]
            alike.setdefault((here.first, here.last, there.first, there.last), []).append((forward, backward))
        return [self._alike(number, index, pairs, offset) for pairs in alike.values()]

    def _alike(
        self, number: int, index: Ints, pairs: list[tuple[Run, Run]], offset: int
    ) -> tuple[Ints, Ints, Ints]:
        tensors, (forward, backward) = self.stages[number].tensors, pairs[0]
        index = index[self._alive(number, index, forward, backward)]
        starts = np.array([[self.placed[run].start for run in pair] for pair in pairs], dtype=np.int64)
        ends = []
        for segments, rows, birth in (
            (tensors.birth_segment[index], tensors.birth_row[index], True),
            (tensors.death_segment[index], tensors.death_row[index], False),
        ):
            end = np.full((len(pairs), len(index)), self.total, dtype=np.int64)
            for segment, run, start in (
                (FORWARD, forward, starts[:, :1]),
                (BACKWARD, backward, starts[:, 1:]),
            ):
                mine = np.flatnonzero(segments == segment)
                end[:, mine] = start + self._compressed(run, self.placed[run], rows[mine], birth)
            mine = np.flatnonzero(segments == STEP)
            end[:, mine] = self._step_rows(number, rows[mine])
            ends.append(end.ravel())
        return ends[0], ends[1], np.tile(tensors.template[index] + offset, len(pairs))

    def _alive(self, number: int, index: Ints, forward: Run, backward: Run) -> NDArray[np.bool_]:
        """Which tensors there are in a micro-batch; one of the optimizer's segment is there once."""
        tensors = self.stages[number].tensors
        segment, when = tensors.birth_segment[index], tensors.when[index]
        alive = np.zeros(len(index), dtype=bool)
        for letter, run in ((FORWARD, forward), (BACKWARD, backward)):
            placed = self.placed[run]
            alive |= (segment == letter) & runs_now(when, placed.first, placed.last)
        return alive | ((segment == STEP) & self.placed[forward].first)


def tables(names: Names) -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
    """The three name tables, in the order of `NAMED`."""
    return names.owners, names.ops, names.streams


def assemble(
    stages: Mapping[int, Stage],
    order: Sequence[Run],
    *,
    scenario: str = "",
    rank: int = 0,
    axes: Mapping[str, int] | None = None,
    rates: Rates | None = None,
) -> Program:
    """Lay one rank's stages along its order list.

    Parameters
    ----------
    stages
        The rank's stages by number.
    order
        Forward and backward runs in the order in which the rank issues them; the optimizer step follows.
    scenario, rank, axes, rates
        Name and rank for the tables; ranks on each mesh axis; rates of the cluster.
    """
    work = Assembly(stages, order)
    index, microbatch = work.rows()
    bank, names = work.bank()
    return Program(
        scenario=scenario,
        rank=rank,
        bank=bank,
        index=index,
        microbatch=microbatch,
        owners=tuple(names.owners),
        ops=tuple(names.ops),
        streams=tuple(names.streams),
        held=work.held(),
        stages=dict(stages),
        axes=dict(axes or {}),
        rates=rates,
    )
