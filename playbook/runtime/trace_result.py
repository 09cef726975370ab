"""What a trace gives: rows under the program's ids, and memory by term at each of them."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from playbook.program.ids import Id, parse
from playbook.program.traffic import WIRE
from playbook.program.walk import Curve, block_name, terms_of
from playbook.spec import Scenario
from playbook.tables import table
from playbook.units import counted, size

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True, kw_only=True, repr=False)
class Trace:
    """One rank's step, run by real code on fake tensors.

    Parameters
    ----------
    scenario
        What was traced.
    rank
        Which rank.
    ids
        Operations in the order in which they ran, without those of the skip list.
    payload_bytes
        Payload of each, 0 for an operation that does not communicate.
    levels
        Bytes while each runs, rows × terms of `TERMS`: the highest until the next one.
    """

    scenario: Scenario
    rank: int
    ids: tuple[str, ...]
    payload_bytes: tuple[int, ...]
    levels: NDArray[np.int64]

    source = "traced"
    seconds = None
    """Fake tensors take no time."""
    reserved_bytes = None
    """What the allocator would hold beyond the peak depends on its history, which a trace does not have."""

    def __repr__(self) -> str:
        return (
            f"Trace(PyTorch's code on fake tensors: {self.scenario.model.name}, rank {self.rank} of "
            f"{self.scenario.world}; {counted(len(self.ids), 'operation')}, peak {size(self.peak_bytes)} at "
            f"{self.instant})"
        )

    @cached_property
    def totals(self) -> NDArray[np.int64]:
        """Bytes while each operation runs."""
        return self.levels.sum(axis=1)

    @cached_property
    def peak_row(self) -> int:
        """Row of the peak, the first if several are equal."""
        return int(self.totals.argmax())

    @property
    def peak_bytes(self) -> int:
        """Most bytes at any row: what the allocator would hand out."""
        return int(self.totals[self.peak_row])

    @property
    def terms(self) -> list[dict[str, Any]]:
        """Term and bytes at the peak; they add up to it."""
        return [{"term": term, "bytes": size} for term, size in terms_of(self._level(self.peak_row)).items()]

    @property
    def instant(self) -> str:
        """Phase and block of the peak, as in "B layers.78"."""
        return self._instant(self.peak_row)

    @property
    def payloads(self) -> dict[str, int]:
        """Payload bytes by id."""
        return dict(zip(self.ids, self.payload_bytes, strict=True))

    def curve(self, points: int = 160) -> Curve:
        """Thin the memory over the step to about so many points, each the largest of its stretch of rows."""
        rows = len(self.ids)
        edges = np.unique(np.linspace(0, rows, min(points, rows) + 1).astype(int))
        picked = {a + int(self.totals[a:b].argmax()) for a, b in zip(edges[:-1], edges[1:], strict=True)}
        kept = sorted({*picked, self.peak_row})
        parts = [self._parts(row) for row in kept]
        return Curve(
            labels=[block_name(part.owner) for part in parts],
            phases=[part.phase for part in parts],
            levels=self.levels[kept].astype(np.float64),
            peak_index=kept.index(self.peak_row),
        )

    @property
    def memory(self) -> "DataFrame":
        """The memory table: one row a term, at the peak."""
        return table("memory", self._memory_rows([self.peak_row]))

    @property
    def instants(self) -> "DataFrame":
        """The memory table at every operation."""
        return table("memory", self._memory_rows(range(len(self.ids))))

    @property
    def table(self) -> "DataFrame":
        """The memory table at the peak, as `memory`."""
        return self.memory

    @property
    def traffic(self) -> "DataFrame":
        """The traffic table: one row a collective."""
        degrees = dict(self.scenario.layout.axes)
        rows = []
        for text, payload in zip(self.ids, self.payload_bytes, strict=True):
            part = parse(text)
            if part.axis is None:
                continue
            facts = {"op": text, "step": 0, "phase": part.phase, "axis": part.axis, "collective": part.op}
            wire = WIRE[part.op](degrees[part.axis]) * payload
            rows.append({**self._key(), **facts, "count": 1, "payload_bytes": payload, "wire_bytes": wire})
        return table("traffic", rows)

    def _key(self) -> dict[str, Any]:
        return {"scenario": self.scenario.model.name, "rank": self.rank, "source": self.source}

    def _memory_rows(self, rows: Any) -> list[dict[str, Any]]:
        return [
            {
                **self._key(),
                "op": self.ids[row],
                "instant": self._instant(row),
                "term": term,
                "bytes": size,
                "formula": "",
            }
            for row in rows
            for term, size in terms_of(self._level(row)).items()
        ]

    def _level(self, row: int) -> NDArray[np.float64]:
        return self.levels[row].astype(np.float64)

    def _parts(self, row: int) -> Id:
        return parse(self.ids[row])

    def _instant(self, row: int) -> str:
        part = self._parts(row)
        return f"{part.phase} {block_name(part.owner)}"
