"""What a file of this folder declares: one pipeline schedule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from playbook.schedules.action import Action
from playbook.schedules.packed import Packed
from playbook.schedules.placement import loop

Rule = Callable[[int, int, int], str | None]
"""(ranks, micro-batches, chunks) → why this cannot be, and what would work; None if it can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkCosts:
    """Costs of one chunk, in any one unit; the same for all stages."""

    forward: float = 1.0
    backward_input: float = 1.0
    backward_weight: float = 1.0
    overlap: float | None = None
    """A forward and a backward at the same time; one after the other if None."""

    @property
    def backward(self) -> float:
        """Cost of a fused backward."""
        return self.backward_input + self.backward_weight

    @property
    def both(self) -> float:
        """Cost of an overlapped forward and backward."""
        return self.forward + self.backward if self.overlap is None else self.overlap


def no_objection(ranks: int, microbatches: int, chunks: int) -> str | None:
    """Accept every size."""
    return None


def remark_of_one_chunk(what: str) -> Rule:
    """Make the remark of a schedule of many chunks: what it is with one chunk a rank."""

    def remark(ranks: int, microbatches: int, chunks: int) -> str | None:
        if chunks > 1:
            return None
        return f"chunks=1: {what}; give chunks=2 or more to interleave"

    return remark


def any_cost(costs: ChunkCosts) -> str | None:
    """Accept all costs."""
    return None


def no_peak(rank: int, ranks: int, microbatches: int, chunks: int) -> int | None:
    """Tell that no formula is known."""
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A schedule: how to make its order, and what is known about it."""

    name: str
    """The name users type."""
    summary: str
    """One line for drop-downs and help."""
    source: str
    """Where the order is defined: authors, year, section."""
    orders: Callable[[int, int, int], Sequence[Packed | Sequence[Action]]]
    """(ranks, micro-batches, chunks) → each rank's actions in order, packed or as a plain list."""
    idle: Callable[[int, int, int, ChunkCosts], float]
    """(ranks, micro-batches, chunks, costs) → makespan minus work of a rank, for equal stages and no
    communication; exact where neither `note` nor `cost_note` has anything to say."""
    idle_text: str
    """The same as papers write it: capitals are a rank's whole share, small letters one chunk."""
    peak: Callable[[int, int, int, int], int | None] = no_peak
    """(rank, ranks, micro-batches, chunks) → most chunks alive on a rank; None where no formula is known."""
    peak_text: str = ""
    """The same as papers write it."""
    placement: Callable[[int, int], tuple[int, ...]] = loop
    """(ranks, chunks) → the rank of each stage."""
    default_chunks: int = 1
    chains: int = 1
    """Directions in which micro-batches pass; with 2 every rank holds a second copy of another stage."""
    refuse: Rule = no_objection
    """Sizes for which no such order exists."""
    note: Rule = no_objection
    """Sizes for which an order exists and `idle` fails."""
    remark: Rule = no_objection
    """What is worth knowing at a size though `idle` holds."""
    cost_note: Callable[[ChunkCosts], str | None] = any_cost
    """Costs for which `idle` fails."""
    rules: Mapping[str, Rule] = field(default_factory=dict)
    """Framework → its own condition. A framework that has pipelines and is absent cannot run the schedule."""
