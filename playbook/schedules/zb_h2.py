"""ZB-H2: twice the forwards ahead, so that no rank waits between its first and its last action."""

from __future__ import annotations

import numpy as np

from playbook.schedules.conditions import exactly
from playbook.schedules.packed import F, I, Packed, W, pack, split_in_turn
from playbook.schedules.plan import ChunkCosts, Plan


def orders(ranks: int, microbatches: int, chunks: int) -> list[Packed]:
    """Forwards until the first gradient arrives, on every rank: 2(p − 1 − r) + 1 on rank r.

    Rank r starts its backwards for the weights 2r turns late: seen backwards in time the last rank's weights
    are the first rank's forwards, and nothing waits at the end either. With fewer than 2p − 1 micro-batches
    the ranks keep ahead by what there is; with p or fewer that is ZB-H1.
    """
    every = np.arange(microbatches)
    extra = min(max(microbatches - ranks, 0), ranks - 1)
    leads = [ranks - rank + min(extra, ranks - 1 - rank) for rank in range(ranks)]
    return [
        split_in_turn(
            pack(rank, F, every),
            pack(rank, I, every),
            pack(rank, W, every),
            lead=min(lead, microbatches),
            lag=ranks + extra - lead,
        )
        for rank, lead in enumerate(leads)
    ]


def idle(ranks: int, microbatches: int, chunks: int, costs: ChunkCosts) -> float:
    """(p − 1)F: rank p − 1 starts so much later than rank 0, and then nobody waits."""
    return (ranks - 1) * costs.forward


def peak(rank: int, ranks: int, microbatches: int, chunks: int) -> int:
    """Nearly twice what 1F1B holds on its first rank: 2p − 1, on every rank."""
    return min(microbatches, 2 * ranks - 1)


def note(ranks: int, microbatches: int, chunks: int) -> str | None:
    """The lead of the first rank is 2p − 1 forwards."""
    if microbatches >= 2 * ranks - 1:
        return None
    return (
        f"microbatches={microbatches} is less than 2 stages − 1 = {2 * ranks - 1}: too few to run ahead "
        f"with, so ranks wait inside their span too and the formula does not hold; the simulation does"
    )


def cost_note(costs: ChunkCosts) -> str | None:
    """Backwards for the weights fill the gaps before backwards for the inputs: two of them for each."""
    f, i, w = costs.forward, costs.backward_input, costs.backward_weight
    if i / 2 <= w <= f:
        return None
    return (
        f"backward-weight={w:g} is not between half of backward-input={i:g} and forward={f:g}: "
        f"the formula is exact only there; the simulation holds"
    )


PLAN = Plan(
    name="zb-h2",
    summary="split backward in twice the memory of 1F1B: no rank waits inside its span",
    source="Qi et al., Zero Bubble Pipeline Parallelism, 2024, section 2.2",
    orders=orders,
    idle=idle,
    idle_text="(p − 1) F, the late start; (p − 1)(F + I − 2W) inside a rank's span",
    peak=peak,
    peak_text="min(m, 2 p − 1)",
    refuse=exactly(1, "zb-h2", "one stage of the loop", "chunks=1, or zbv"),
    note=note,
    cost_note=cost_note,
)
