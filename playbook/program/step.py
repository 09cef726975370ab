"""The assembled step program of one rank, as arrays: what is walked, summed and timed."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from playbook.program.block import Tensor
from playbook.program.ids import PHASES
from playbook.program.lay import Stage
from playbook.program.order import Ints
from playbook.program.rates import Rates
from playbook.program.segment import Rows
from playbook.tables import TERMS

if TYPE_CHECKING:
    from playbook.program.timeline import Timeline
    from playbook.program.traffic import Traffic
    from playbook.program.walk import MemoryWalk


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Held:
    """Tensors of the whole step: rows of birth and death, and the template of each.

    A tensor is gone after the end of its row of death; the number of rows means that it stays.
    """

    birth: Ints
    death: Ints
    template: Ints


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Program:
    """One rank's step: operations in order of issue, with the tensors they bear and free.

    Parameters
    ----------
    scenario
        Name for the tables.
    rank
        The rank.
    bank, index
        Distinct rows of the rank's stages, and which of them each row of the step is.
    microbatch
        Micro-batch of each row (−1: the optimizer step).
    owners, ops, streams
        Names that the rows' columns index.
    held
        Tensors.
    stages
        What was laid, by number.
    axes
        Ranks on each mesh axis, for wire bytes.
    rates
        Of the scenario's cluster, for time.
    """

    scenario: str
    rank: int
    bank: Rows
    index: Ints
    microbatch: Ints
    owners: tuple[str, ...]
    ops: tuple[str, ...]
    streams: tuple[str, ...]
    held: Held
    stages: Mapping[int, Stage]
    axes: Mapping[str, int]
    rates: Rates | None = None

    def __len__(self) -> int:
        return len(self.index)

    def __repr__(self) -> str:
        rows, tensors = len(self), len(self.held.birth)
        return f"Program({self.scenario}, rank {self.rank}: {rows} operations, {tensors} tensors)"

    @cached_property
    def rows(self) -> Rows:
        """Operations, one array a column."""
        return Rows(**{name: getattr(self.bank, name)[self.index] for name in Rows.__dataclass_fields__})

    @cached_property
    def templates(self) -> tuple[Tensor, ...]:
        """Tensor templates that `held.template` indexes."""
        return tuple(tensor for stage in self.stages.values() for tensor in stage.templates)

    @cached_property
    def sizes(self) -> Ints:
        """Bytes of each tensor."""
        return np.array([t.bytes for t in self.templates], dtype=np.int64)[self.held.template]

    @cached_property
    def split_only(self) -> np.ndarray:
        """Which tensors are there only because backward is split."""
        return np.array([t.split_only for t in self.templates], dtype=bool)[self.held.template]

    @cached_property
    def terms(self) -> Ints:
        """Term of each tensor, as an index into the tables' terms."""
        return np.array([TERMS.index(t.term) for t in self.templates], dtype=np.int64)[self.held.template]

    @cached_property
    def occurrence(self) -> Ints:
        """Occurrence of each row among those of its micro-batch, phase, owner and operation: the k of its
        id."""
        stem = self._stems
        order = np.argsort(stem, kind="stable")
        ordered = stem[order]
        new = (
            np.concatenate(([True], ordered[1:] != ordered[:-1])) if len(ordered) else np.zeros(0, dtype=bool)
        )
        first = np.maximum.accumulate(np.where(new, np.arange(len(ordered)), 0))
        k = np.empty(len(ordered), dtype=np.int64)
        k[order] = np.arange(len(ordered)) - first
        return k

    @cached_property
    def _stems(self) -> Ints:
        rows = self.rows
        packed = (self.microbatch + 1) * len(PHASES) + rows.phase
        packed = packed * (int(rows.layer.max(initial=0)) + 2) + rows.layer + 1
        return (packed * len(self.owners) + rows.owner) * len(self.ops) + rows.op

    @cached_property
    def keys(self) -> Ints:
        """Ids as packed integers, unique in this program."""
        return self._stems * (int(self.occurrence.max(initial=0)) + 1) + self.occurrence

    def owner(self, row: int) -> str:
        """Module path of a row's owner."""
        place = self.index[row]
        return owner_text(int(self.bank.layer[place]), self.owners[self.bank.owner[place]])

    def phase(self, row: int) -> str:
        """Phase letter of a row."""
        return PHASES[self.bank.phase[self.index[row]]]

    def id(self, row: int) -> str:
        """Id of one row."""
        k, op = int(self.occurrence[row]), self.ops[self.rows.op[row]]
        return f"m{self.microbatch[row]}/{self.phase(row)}/{self.owner(row)}/{op}#{k}"

    def ids(self) -> list[str]:
        """Ids of all rows, in order of issue; texts are made once per micro-batch-free id."""
        width = self._width
        local, index = np.unique(self.keys - (self.microbatch + 1) * width, return_inverse=True)
        example = np.zeros(len(local), dtype=np.int64)
        example[index] = np.arange(len(index))
        tails = np.array([self._tail(int(row)) for row in example], dtype=object)
        heads = {mb: f"m{mb}/" for mb in np.unique(self.microbatch).tolist()}
        return [heads[mb] + tail for mb, tail in zip(self.microbatch.tolist(), tails[index], strict=True)]

    @property
    def _width(self) -> int:
        layers = int(self.rows.layer.max(initial=0)) + 2
        spread = int(self.occurrence.max(initial=0)) + 1
        return len(PHASES) * layers * len(self.owners) * len(self.ops) * spread

    def _tail(self, row: int) -> str:
        return self.id(row).partition("/")[2]

    def memory(self) -> "MemoryWalk":
        """Walk births and deaths: the level of every term at every row, and the peak."""
        from playbook.program.walk import walk

        return walk(self)

    def traffic(self) -> "Traffic":
        """Sum the payload of every collective and message."""
        from playbook.program.traffic import sum_traffic

        return sum_traffic(self)

    def timeline(self, rates: Rates | None = None) -> "Timeline":
        """Run the rows on their streams, at the cluster's rates or given ones.

        Raises
        ------
        ValueError
            If the program has no rates and none are given.
        """
        from playbook.program.timeline import time_program

        chosen = rates or self.rates
        if chosen is None:
            raise ValueError("this program was assembled without rates; give timeline(rates=Rates(...))")
        return time_program(self, chosen)

    @property
    def flops(self) -> int:
        """Floating-point operations of the step on this rank."""
        return int(self.rows.flops.sum())


def owner_text(layer: int, owner: str) -> str:
    """Module path from a layer number (−1: none) and a path relative to it.

    Examples
    --------
    >>> owner_text(3, "mlp"), owner_text(3, ""), owner_text(-1, "norm")
    ('layers.3.mlp', 'layers.3', 'norm')
    """
    if layer < 0:
        return owner
    return f"layers.{layer}.{owner}" if owner else f"layers.{layer}"
