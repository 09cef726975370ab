"""Lay stages along an order list: one rank's program, by array broadcasting over layers and micro-batches."""

from collections.abc import Mapping, Sequence

import numpy as np

from playbook.program.lay import Stage, joined
from playbook.program.lifetimes import Lifetimes
from playbook.program.names import Names, code
from playbook.program.order import Ints, Run
from playbook.program.rates import Rates
from playbook.program.segment import Rows
from playbook.program.step import Program

NAMED = ("owner", "op", "stream")


class Assembly(Lifetimes):
    """The work of `assemble`: the rows of the step, in order."""

    def rows(self) -> tuple[Ints, Ints]:
        """Index of every row of the step in `bank`'s rows, and its micro-batch."""
        offsets, parts, microbatches = self._offsets(), [], []
        for run in self.order:
            kept = self.kept[run.stage, run.segment, self.placed[run].turn]
            parts.append(kept + offsets[run.stage, run.segment])
            microbatches.append(run.microbatch)
        for place, (number, stage) in enumerate(self.stages.items()):
            parts.append(np.arange(1 if place else 0, len(stage.rows["O"])) + offsets[number, "O"])
            microbatches.append(-1)
        return joined(parts), np.repeat(np.array(microbatches), [len(part) for part in parts])

    def _letters(self, number: int) -> list[str]:
        """Segments of a stage that the step has."""
        return [*sorted({run.segment for run in self.runs[number]}), "O"]

    def _offsets(self) -> dict[tuple[int, str], int]:
        offsets, at = {}, 0
        for number, stage in self.stages.items():
            for letter in self._letters(number):
                offsets[number, letter] = at
                at += len(stage.segment(letter))
        return offsets

    def bank(self) -> tuple[Rows, Names]:
        """Rows of all stages one behind the other, their names merged."""
        names, columns = Names.none(), {field: [] for field in Rows.__dataclass_fields__}
        for number, stage in self.stages.items():
            segments = [stage.segment(letter) for letter in self._letters(number)]
            merged = {
                field: np.array([code(mine, text) for text in theirs], dtype=np.int64)
                for field, mine, theirs in zip(NAMED, tables(names), tables(stage.names), strict=True)
            }
            for rows in segments:
                for field, parts in columns.items():
                    column = getattr(rows, field)
                    parts.append(merged[field][column] if field in merged else column)
        return Rows(**{field: joined(parts) for field, parts in columns.items()}), names


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
        Runs in the order in which the rank issues them; the optimizer step follows.
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
