"""1F1B: a rank starts each backward as soon as it can, so few micro-batches are alive."""

from __future__ import annotations

import numpy as np

from playbook.schedules.conditions import exactly
from playbook.schedules.gpipe import idle
from playbook.schedules.packed import B, F, Packed, in_turn, pack
from playbook.schedules.plan import Plan, no_objection


def orders(ranks: int, microbatches: int, chunks: int) -> list[Packed]:
    """Forwards until the first backward can come, then one backward and one forward in turn.

    Rank r leads with p − r forwards, so it never holds more micro-batches than that.
    """
    every = np.arange(microbatches)
    return [
        in_turn(pack(rank, F, every), pack(rank, B, every), lead=min(ranks - rank, microbatches))
        for rank in range(ranks)
    ]


def peak(rank: int, ranks: int, microbatches: int, chunks: int) -> int:
    """At most p − r on rank r."""
    return min(microbatches, ranks - rank)


def torch_rule(ranks: int, microbatches: int, chunks: int) -> str | None:
    """PyTorch wants at least one micro-batch a stage."""
    if microbatches >= ranks:
        return None
    return (
        f"microbatches={microbatches} with stages={ranks}: torch's 1f1b wants microbatches ≥ stages; "
        f"use microbatches={ranks}, stages={microbatches}, or gpipe"
    )


PLAN = Plan(
    name="1f1b",
    summary="one forward, one backward: at most p − r micro-batches alive on rank r",
    source="Narayanan et al., Efficient Large-Scale Language Model Training, 2021, section 2.2.1",
    orders=orders,
    idle=idle,
    idle_text="(p − 1)(F + B)",
    peak=peak,
    peak_text="min(m, p − r)",
    refuse=exactly(1, "1f1b", "one stage of the loop", "chunks=1, or interleaved-1f1b"),
    rules={"torch": torch_rule, "megatron": no_objection},
)
