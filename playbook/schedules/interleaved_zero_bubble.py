"""Interleaved zero bubble: interleaved 1F1B with a split backward."""

from __future__ import annotations

from playbook.schedules.conditions import light_weights
from playbook.schedules.interleaved_one_f_one_b import passes, rounds, torch_rule
from playbook.schedules.packed import F, I, Packed, W, pack, split_in_turn
from playbook.schedules.plan import ChunkCosts, Plan, remark_of_one_chunk


def orders(ranks: int, microbatches: int, chunks: int) -> list[Packed]:
    """The passes of interleaved 1F1B, the lead and lag of ZB-H1.

    One forward for each rank below is lead enough, since a backward for the input takes no longer than a
    forward; with one chunk a rank this is ZB-H1.
    """
    chunk, microbatch = passes(ranks, microbatches, chunks)
    group = max(rounds(ranks, microbatches))
    made = []
    for rank in range(ranks):
        backward_stage = (chunks - 1 - chunk) * ranks + rank
        made.append(
            split_in_turn(
                pack(chunk * ranks + rank, F, microbatch),
                pack(backward_stage, I, microbatch),
                pack(backward_stage, W, microbatch),
                lead=min((chunks - 1) * group + ranks - rank, len(chunk)),
                lag=rank,
            )
        )
    return made


def idle(ranks: int, microbatches: int, chunks: int, costs: ChunkCosts) -> float:
    """(p − 1)(f + i − w) with the costs of one chunk."""
    return (ranks - 1) * (costs.forward + costs.backward_input - costs.backward_weight)


def peak(rank: int, ranks: int, microbatches: int, chunks: int) -> int | None:
    """A group of p micro-batches on all chunks, on every rank; known where p divides m."""
    return None if microbatches % ranks else ranks * chunks


def note(ranks: int, microbatches: int, chunks: int) -> str | None:
    """The formula wants whole groups of p micro-batches; one chunk wants just p."""
    if microbatches % ranks == 0 or (chunks == 1 and microbatches > ranks):
        return None
    return (
        f"microbatches={microbatches} is no multiple of stages={ranks}: "
        f"the idle time is not (p − 1)(f + b − 2w) then; the simulation holds"
    )


PLAN = Plan(
    name="interleaved-zero-bubble",
    summary="v chunks a rank and a split backward: ZB-H1's idle time over v",
    source="Qi et al., Zero Bubble Pipeline Parallelism, 2024, section 2.1, on the passes of "
    "Narayanan et al., 2021, section 2.2.2, as PyTorch runs it",
    orders=orders,
    idle=idle,
    idle_text="(p − 1)(f + b − 2w) = (p − 1)(F + I − W)/v",
    peak=peak,
    peak_text="p v",
    note=note,
    remark=remark_of_one_chunk("the same order as zb-h1"),
    cost_note=light_weights,
    rules={"torch": torch_rule},
)
