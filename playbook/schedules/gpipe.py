"""GPipe: all forwards, then all backwards."""

from __future__ import annotations

import numpy as np

from playbook.schedules.conditions import exactly
from playbook.schedules.packed import B, F, Packed, pack
from playbook.schedules.plan import ChunkCosts, Plan, no_objection


def orders(ranks: int, microbatches: int, chunks: int) -> list[Packed]:
    """Every rank runs its m forwards and then its m backwards, first in, first out."""
    every = np.arange(microbatches)
    return [np.concatenate((pack(rank, F, every), pack(rank, B, every))) for rank in range(ranks)]


def idle(ranks: int, microbatches: int, chunks: int, costs: ChunkCosts) -> float:
    """(p − 1)(F + B): the pipeline fills once and drains once."""
    return (ranks - 1) * (costs.forward + costs.backward)


def peak(rank: int, ranks: int, microbatches: int, chunks: int) -> int:
    """All micro-batches, on every rank."""
    return microbatches


PLAN = Plan(
    name="gpipe",
    summary="all forwards, then all backwards",
    source="Huang et al., GPipe, 2019, section 2.3",
    orders=orders,
    idle=idle,
    idle_text="(p − 1)(F + B)",
    peak=peak,
    peak_text="m",
    refuse=exactly(1, "gpipe", "one stage of the loop", "chunks=1, or looped-bfs"),
    rules={"torch": no_objection},
)
