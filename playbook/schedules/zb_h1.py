"""ZB-H1: the backward is split, and backwards for the weights fill the gaps that 1F1B leaves."""

from __future__ import annotations

import numpy as np

from playbook.schedules.conditions import exactly, light_weights
from playbook.schedules.interleaved_one_f_one_b import torch_rule
from playbook.schedules.packed import F, I, Packed, W, pack, split_in_turn
from playbook.schedules.plan import ChunkCosts, Plan


def orders(ranks: int, microbatches: int, chunks: int) -> list[Packed]:
    """1F1B's lead of p − r forwards, and backwards for the weights that rank r starts r turns late.

    Backwards for the inputs, on which others wait, come as early as in 1F1B but take less time. What lies
    below gets its gradient later, so it has more backwards for the weights in hand to end with.
    """
    every = np.arange(microbatches)
    return [
        split_in_turn(
            pack(rank, F, every),
            pack(rank, I, every),
            pack(rank, W, every),
            lead=min(ranks - rank, microbatches),
            lag=rank,
        )
        for rank in range(ranks)
    ]


def idle(ranks: int, microbatches: int, chunks: int, costs: ChunkCosts) -> float:
    """(p − 1)(F + I − W): a third of 1F1B's idle time where the three are equal."""
    return (ranks - 1) * (costs.forward + costs.backward_input - costs.backward_weight)


def peak(rank: int, ranks: int, microbatches: int, chunks: int) -> int:
    """As many on every rank as 1F1B has on the first: p."""
    return min(microbatches, ranks)


def note(ranks: int, microbatches: int, chunks: int) -> str | None:
    """The formula wants every rank to be busy at once."""
    if microbatches >= ranks:
        return None
    return (
        f"microbatches={microbatches} is less than stages={ranks}: the idle time is more than "
        f"(p − 1)(F + I − W) then; the simulation holds"
    )


PLAN = Plan(
    name="zb-h1",
    summary="split backward in the memory of 1F1B: a third of its idle time",
    source="Qi et al., Zero Bubble Pipeline Parallelism, 2024, section 2.1",
    orders=orders,
    idle=idle,
    idle_text="(p − 1)(F + I − W)",
    peak=peak,
    peak_text="min(m, p)",
    refuse=exactly(1, "zb-h1", "one stage of the loop", "chunks=1, or interleaved-zero-bubble"),
    note=note,
    cost_note=light_weights,
    rules={"torch": torch_rule},
)
