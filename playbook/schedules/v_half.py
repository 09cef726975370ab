"""V-Half: half of 1F1B's memory and half of its idle time."""

from __future__ import annotations

from playbook.schedules.building_block import block, orders_of
from playbook.schedules.conditions import down_and_up, equal_costs
from playbook.schedules.packed import Packed
from playbook.schedules.placement import v_shape
from playbook.schedules.plan import ChunkCosts, Plan

STEPS = (2, 1, 2, 1)
"""Down in two slots a stage, up in one, both ways: 6p slots a round trip, 6p/6 = p chunks on every rank."""


def orders(ranks: int, microbatches: int, chunks: int) -> list[Packed]:
    """The block of six slots a rank; the turns wait where slots would collide."""
    laid = block(ranks, STEPS, (0, 0 if ranks % 2 else 3, 1))
    return orders_of(laid, microbatches, room(ranks))


def room(ranks: int) -> int:
    """Chunks that a rank may hold: two for each of the paper's (p + 2)//2 micro-batches; 1F1B holds 2p.

    Examples
    --------
    >>> room(4), room(8), room(16)
    (6, 10, 18)
    """
    return 2 * ((ranks + 2) // 2)


def idle(ranks: int, microbatches: int, chunks: int, costs: ChunkCosts) -> float:
    """3(p − 1)f, and one f less for an odd p: 1F1B has 6(p − 1)f at f = i = w."""
    return (3 * (ranks - 1) - (ranks % 2 if ranks > 1 else 0)) * costs.forward


def peak(rank: int, ranks: int, microbatches: int, chunks: int) -> int | None:
    """All the room, on every rank; known from p + 1 micro-batches on."""
    return room(ranks) if microbatches > ranks or ranks == 1 else None


def note(ranks: int, microbatches: int, chunks: int) -> str | None:
    """The ranks reach their full room with half as many micro-batches as ranks."""
    if microbatches > ranks // 2:
        return None
    return (
        f"microbatches={microbatches} is not more than half of stages={ranks}: ranks wait longer than "
        f"3(p − 1)f; the simulation holds"
    )


PLAN = Plan(
    name="v-half",
    summary="V placement in half of 1F1B's memory, with half of its idle time",
    source="Qi et al., Pipeline Parallelism with Controllable Memory, 2024, arXiv 2405.15362",
    orders=orders,
    idle=idle,
    idle_text="3(p − 1) f at f = i = w, one f less for odd p: half of 1F1B's",
    peak=peak,
    peak_text="2 ⌊(p + 2)/2⌋",
    placement=v_shape,
    default_chunks=2,
    refuse=down_and_up("v-half"),
    note=note,
    cost_note=equal_costs,
)
