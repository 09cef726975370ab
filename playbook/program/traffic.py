"""Traffic: the payload of every collective and message, and the bytes on the wire under the ring model."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from playbook.program.ids import PHASES
from playbook.program.order import Ints
from playbook.program.step import Program
from playbook.tables import AXES, table
from playbook.units import gb

if TYPE_CHECKING:
    from pandas import DataFrame

WIRE: dict[str, Callable[[int], float]] = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "all_to_all": lambda n: (n - 1) / n,
    "broadcast": lambda n: 1.0 if n > 1 else 0.0,
    "send": lambda n: 1.0,
    "receive": lambda n: 0.0,
    "send_recv": lambda n: 1.0 if n > 1 else 0.0,
}
"""Bytes that a rank sends in a ring of n, as a part of the payload (nccl-tests' bus bandwidth factors). A
receive sends nothing: its bytes are the sender's."""


PAIR = 2


def group_size(op: str, axis: str, axes: Mapping[str, int], own: int = 0) -> int:
    """Ranks of a collective: its own number if it has one, or those of its axis; for gradients that are
    summed over pp, the two that hold copies of a stage."""
    if own:
        return own
    return PAIR if (op, axis) == ("all_reduce", "pp") else axes.get(axis, 1)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Traffic:
    """Communication of one rank's step.

    Parameters
    ----------
    program
        What was summed.
    index
        Rows that communicate.
    """

    program: Program
    index: Ints

    def __repr__(self) -> str:
        parts = ", ".join(f"{name} {gb(size)}" for name, size in self.by_collective.items())
        return f"Traffic(rank {self.program.rank}: {self.count} operations; payload {parts or gb(0)})"

    @property
    def payload(self) -> Ints:
        """Payload bytes of each communicating row."""
        return self.program.bank.payload[self.program.index[self.index]]

    @property
    def wire(self) -> np.ndarray:
        """Bytes that this rank sends for each communicating row."""
        factors = [self._factor(row) for row in self.index]
        return self.payload * np.array(factors, dtype=np.float64)

    def _factor(self, row: int) -> float:
        op, axis = self._names(row)
        own = int(self.program.bank.ranks[self.program.index[row]])
        return WIRE[op](group_size(op, axis, self.program.axes, own))

    def _names(self, row: int) -> tuple[str, str]:
        op, _, axis = self.program.ops[self.program.bank.op[self.program.index[row]]].partition("@")
        return op, axis

    def select(
        self, axis: str | None = None, collective: str | None = None, phase: str | None = None
    ) -> "Traffic":
        """Return the traffic of an axis, a collective, a phase, or of what several of them have in common."""
        wanted = (axis, collective, phase)
        kept = [
            row
            for row in self.index
            if all(want in (None, has) for want, has in zip(wanted, self._facts(row), strict=True))
        ]
        return Traffic(program=self.program, index=np.array(kept, dtype=np.int64))

    def _facts(self, row: int) -> tuple[str, str, str]:
        op, axis = self._names(row)
        return axis, op, self.program.phase(row)

    @property
    def count(self) -> int:
        """Collectives and messages."""
        return len(self.index)

    @property
    def payload_bytes(self) -> int:
        """Payload bytes in all."""
        return int(self.payload.sum())

    @property
    def wire_bytes(self) -> float:
        """Bytes that this rank sends in all, ring model."""
        return float(self.wire.sum())

    @property
    def by_collective(self) -> dict[str, int]:
        """Payload bytes by `collective@axis`."""
        codes, payload = self.program.rows.op[self.index], self.payload
        names = (self.program.ops[code] for code in np.unique(codes))
        return {name: int(payload[codes == self.program.ops.index(name)].sum()) for name in names}

    @property
    def table(self) -> "DataFrame":
        """The traffic table, one row an operation."""
        program, rows = self.program, self.program.rows
        ops = [program.ops[code].partition("@")[0] for code in rows.op[self.index]]
        return table(
            "traffic",
            {
                "scenario": [program.scenario] * self.count,
                "rank": [program.rank] * self.count,
                "op": [program.id(row) for row in self.index],
                "step": [0] * self.count,
                "phase": [PHASES[code] for code in rows.phase[self.index]],
                "axis": [AXES[code] for code in rows.axis[self.index]],
                "collective": ops,
                "count": [1] * self.count,
                "payload_bytes": self.payload,
                "wire_bytes": self.wire,
                "source": ["formula"] * self.count,
            },
        )


def sum_traffic(program: Program) -> Traffic:
    """Find the rows of a program that communicate."""
    return Traffic(program=program, index=np.flatnonzero((program.bank.axis >= 0)[program.index]))
