"""Interleaved 1F1B: each rank owns v chunks, so the pipeline fills v times as fast."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from playbook.schedules.packed import B, F, Packed, in_turn, pack
from playbook.schedules.plan import ChunkCosts, Plan, remark_of_one_chunk


def rounds(ranks: int, microbatches: int) -> list[int]:
    """Sizes of the groups of micro-batches that a rank takes through all its chunks before the next group.

    Groups of p where p divides m, else groups as equal as can be and no smaller than p (one group below p).

    Examples
    --------
    >>> rounds(4, 8), rounds(4, 10), rounds(4, 3)
    ([4, 4], [5, 5], [3])
    """
    count = max(1, microbatches // ranks)
    size, longer = divmod(microbatches, count)
    return [size + 1] * longer + [size] * (count - longer)


def passes(ranks: int, microbatches: int, chunks: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Chunk and micro-batch in the order of the forwards; backwards take the chunks in reverse.

    Examples
    --------
    >>> chunk, microbatch = passes(2, 4, 2)
    >>> chunk.tolist(), microbatch.tolist()
    ([0, 0, 1, 1, 0, 0, 1, 1], [0, 1, 0, 1, 2, 3, 2, 3])
    """
    chunk, microbatch, first = [], [], 0
    for size in rounds(ranks, microbatches):
        chunk.append(np.repeat(np.arange(chunks), size))
        microbatch.append(np.tile(np.arange(first, first + size), chunks))
        first += size
    return np.concatenate(chunk), np.concatenate(microbatch)


def warmup(rank: int, ranks: int, microbatches: int, chunks: int) -> int:
    """Count the forwards before one forward and one backward run in turn.

    A group passes all chunks but the last, and each rank below needs two forwards more: one on its way down
    and one that runs while the backward comes up. With one chunk, one is enough: that is 1F1B.
    """
    group = max(rounds(ranks, microbatches))
    return (chunks - 1) * group + (1 if chunks == 1 else 2) * (ranks - 1 - rank)


def orders(ranks: int, microbatches: int, chunks: int) -> list[Packed]:
    """Order of every rank; rank r holds at most (v − 1)p + 2(p − 1 − r) + 1 chunks when p divides m."""
    chunk, microbatch = passes(ranks, microbatches, chunks)
    return [
        in_turn(
            pack(chunk * ranks + rank, F, microbatch),
            pack((chunks - 1 - chunk) * ranks + rank, B, microbatch),
            lead=min(warmup(rank, ranks, microbatches, chunks) + 1, len(chunk)),
        )
        for rank in range(ranks)
    ]


def peak(rank: int, ranks: int, microbatches: int, chunks: int) -> int | None:
    """(v − 1)p + 2(p − 1 − r) + 1 chunks on rank r; known where p divides m."""
    if microbatches % ranks:
        return None
    if chunks == 1:
        return min(microbatches, ranks - rank)
    return min(microbatches * chunks, (chunks - 1) * ranks + 2 * (ranks - 1 - rank) + 1)


def idle(ranks: int, microbatches: int, chunks: int, costs: ChunkCosts) -> float:
    """(p − 1)(f + b) with the costs of one chunk: 1/v of 1F1B's idle time."""
    return (ranks - 1) * (costs.forward + costs.backward)


def formula_note(ranks: int, microbatches: int, chunks: int) -> str | None:
    """The formula wants whole groups of p micro-batches."""
    if microbatches % ranks == 0 or chunks == 1:
        return None
    return (
        f"microbatches={microbatches} is no multiple of stages={ranks}: "
        f"the idle time is not (p − 1)(f + b) then; the simulation holds"
    )


def torch_rule(ranks: int, microbatches: int, chunks: int) -> str | None:
    """PyTorch wants equal groups."""
    count = max(1, microbatches // ranks)
    if microbatches % count == 0:
        return None
    return (
        f"microbatches={microbatches} with stages={ranks}: torch runs {count} rounds and wants equal ones; "
        f"use microbatches={microbatches // count * count} or {-(-microbatches // count) * count}"
    )


def megatron_rule(ranks: int, microbatches: int, chunks: int) -> str | None:
    """Megatron wants whole groups of p micro-batches."""
    if microbatches % ranks == 0:
        return None
    lower = microbatches // ranks * ranks
    wanted = f"{lower} or {lower + ranks}" if lower else f"{ranks}"
    return (
        f"microbatches={microbatches} with stages={ranks}: megatron wants a multiple of stages; "
        f"use microbatches={wanted}"
    )


PLAN = Plan(
    name="interleaved-1f1b",
    summary="v chunks a rank: 1/v of the idle time, v times the messages",
    source="Narayanan et al., Efficient Large-Scale Language Model Training, 2021, section 2.2.2",
    orders=orders,
    idle=idle,
    idle_text="(p − 1)(f + b) = (p − 1)(F + B)/v",
    peak=peak,
    peak_text="min(m v, (v − 1) p + 2 (p − 1 − r) + 1)",
    note=formula_note,
    remark=remark_of_one_chunk("the same order as 1f1b"),
    rules={"torch": torch_rule, "megatron": megatron_rule},
)
