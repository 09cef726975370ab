"""What a file of this folder declares: one pipeline schedule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from playbook.schedules.action import Action
from playbook.schedules.packed import Packed
from playbook.schedules.placement import loop

Rule = Callable[[int, int, int], str | None]
"""(ranks, micro-batches, chunks) → why this cannot be, and what would work; None if it can."""


def no_objection(ranks: int, microbatches: int, chunks: int) -> str | None:
    """Accept every size."""
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
    idle: Callable[[int, int, int, float, float], float]
    """(ranks, micro-batches, chunks, forward, backward) → makespan minus work of a rank, for equal stages,
    no communication and the costs of one chunk; exact where `note` has nothing to say."""
    placement: Callable[[int, int], tuple[int, ...]] = loop
    """(ranks, chunks) → the rank of each stage."""
    default_chunks: int = 1
    refuse: Rule = no_objection
    """Sizes for which no such order exists."""
    note: Rule = no_objection
    """Sizes for which an order exists and `idle` fails."""
    rules: Mapping[str, Rule] = field(default_factory=dict)
    """Framework → its own condition. A framework that has pipelines and is absent cannot run the schedule."""
