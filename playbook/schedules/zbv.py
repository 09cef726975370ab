"""ZBV: stages go down the ranks and up again, and no rank waits between its first and last action."""

from __future__ import annotations

from playbook.schedules.conditions import down_and_up, equal_costs
from playbook.schedules.letters import spell
from playbook.schedules.packed import Packed
from playbook.schedules.placement import v_shape
from playbook.schedules.plan import ChunkCosts, Plan, no_objection


def word(rank: int, ranks: int, microbatches: int) -> str:
    """Spell a rank's order for at least 2p − 1 micro-batches.

    Examples
    --------
    >>> word(0, 2, 3), word(1, 2, 3)
    ('FFFfiwfiwIWfiwIWIW', 'FfFfiwFIWfiwIiIWwW')
    """
    below = ranks - rank
    return "".join(
        (
            "F" * (2 * below - 1),  # until the first forward comes back up
            "fF" * rank,  # until the first gradient comes
            "fiw" * below,  # until the first gradient has gone down and up: the last rank is the turn
            "FIWfiw" * (microbatches - 2 * ranks + 1 + rank),
            "IWfiw" * (below - 1),  # forwards have run out on the way down
            "Ii" * rank,  # others wait for gradients; the weights are kept for the end
            "IW" * below,
            "w" * rank,
            "W" * rank,
        )
    )


def orders(ranks: int, microbatches: int, chunks: int) -> list[Packed]:
    """Every rank's word; below 2p − 1 micro-batches the order for 2p − 1 without those there are not."""
    spelled = max(microbatches, 2 * ranks - 1)
    return [
        spell(word(rank, ranks, spelled), (rank, 2 * ranks - 1 - rank), (microbatches, microbatches))
        for rank in range(ranks)
    ]


def idle(ranks: int, microbatches: int, chunks: int, costs: ChunkCosts) -> float:
    """(p − 1)f: rank p − 1 starts so much later than rank 0, and then nobody waits."""
    return (ranks - 1) * costs.forward


def peak(rank: int, ranks: int, microbatches: int, chunks: int) -> int | None:
    """2p chunks on every rank, 1F1B's level on its first; known from 2p − 1 micro-batches on."""
    return None if microbatches < 2 * ranks - 1 else 2 * ranks


def note(ranks: int, microbatches: int, chunks: int) -> str | None:
    """The order is made for at least 2p − 1 micro-batches."""
    if microbatches >= 2 * ranks - 1:
        return None
    return (
        f"microbatches={microbatches} is less than 2 stages − 1 = {2 * ranks - 1}: ranks wait inside their "
        f"span, and the step may end later than the formula says; the simulation holds, and "
        f"interleaved-zero-bubble idles no more"
    )


PLAN = Plan(
    name="zbv",
    summary="V placement and split backward: no waiting inside a rank's span, in 1F1B's memory",
    source="Qi et al., Zero Bubble Pipeline Parallelism, 2024, section 6",
    orders=orders,
    idle=idle,
    idle_text="(p − 1) f, the late start; 0 inside a rank's span",
    peak=peak,
    peak_text="2 p",
    placement=v_shape,
    default_chunks=2,
    refuse=down_and_up("zbv"),
    note=note,
    cost_note=equal_costs,
    rules={"torch": no_objection},
)
