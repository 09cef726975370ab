"""V-Min: a third of 1F1B's memory and two thirds of its idle time."""

from __future__ import annotations

from playbook.schedules.building_block import block, orders_of
from playbook.schedules.conditions import down_and_up, equal_costs
from playbook.schedules.packed import Packed
from playbook.schedules.placement import v_shape
from playbook.schedules.plan import ChunkCosts, Plan

STEPS = (1, 1, 1, 1)
"""One slot a stage, the fewest: 4p slots a round trip, 4p/6 chunks on every rank."""


def orders(ranks: int, microbatches: int, chunks: int) -> list[Packed]:
    """The block of six slots a rank; the turn at the loss waits where slots would collide."""
    laid = block(ranks, STEPS, (0, 0 if ranks % 3 else 2, 0))
    return orders_of(laid, microbatches, room(ranks))


def room(ranks: int) -> int:
    """Chunks that a rank may hold: two for each of the paper's (p + 4)//3 micro-batches; 1F1B holds 2p.

    Examples
    --------
    >>> room(4), room(8), room(16)
    (4, 8, 12)
    """
    return 2 * ((ranks + 4) // 3)


def idle(ranks: int, microbatches: int, chunks: int, costs: ChunkCosts) -> float:
    """4(p − 1)f, one f more where 3 divides p and one less where it does not: 1F1B has 6(p − 1)f."""
    if ranks == 1:
        return 0.0
    return (4 * (ranks - 1) + (-1 if ranks % 3 else 1)) * costs.forward


def peak(rank: int, ranks: int, microbatches: int, chunks: int) -> int | None:
    """All the room; every third rank needs less where p leaves 2 over. Known from p + 1 micro-batches on."""
    if ranks == 1:
        return room(ranks)
    if microbatches <= ranks:
        return None
    spare = (1 if rank == 0 else 2) if ranks % 3 == 2 and rank % 3 == 0 else 0
    return room(ranks) - spare


def note(ranks: int, microbatches: int, chunks: int) -> str | None:
    """A single micro-batch need not wait at the turn, but the next one would."""
    if microbatches > 1 or ranks % 3:
        return None
    return (
        f"microbatches=1 with stages={ranks}: one micro-batch alone waits less than the formula says; "
        f"the simulation holds"
    )


PLAN = Plan(
    name="v-min",
    summary="V placement in a third of 1F1B's memory, with two thirds of its idle time",
    source="Qi et al., Pipeline Parallelism with Controllable Memory, 2024, arXiv 2405.15362",
    orders=orders,
    idle=idle,
    idle_text="(4(p − 1) ∓ 1) f at f = i = w, + where 3 divides p: two thirds of 1F1B's",
    peak=peak,
    peak_text="2 ⌊(p + 4)/3⌋",
    placement=v_shape,
    default_chunks=2,
    refuse=down_and_up("v-min"),
    note=note,
    cost_note=equal_costs,
)
