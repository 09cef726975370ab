"""Looped BFS: a chunk takes all micro-batches before the next chunk begins."""

from __future__ import annotations

import numpy as np

from playbook.schedules.packed import B, F, Packed, pack
from playbook.schedules.plan import ChunkCosts, Plan, no_objection, remark_of_one_chunk


def orders(ranks: int, microbatches: int, chunks: int) -> list[Packed]:
    """Chunks first to last forward, last to first backward, each with every micro-batch.

    Backwards take the micro-batches last to first. A chunk's weights are gathered once each way and its
    gradients are ready all at once: that is what the order is for, together with sharded weights.
    """
    every = np.arange(microbatches)
    made = []
    for rank in range(ranks):
        stages = np.repeat(np.arange(chunks) * ranks + rank, microbatches)
        forwards = pack(stages, F, np.tile(every, chunks))
        backwards = pack(stages[::-1], B, np.tile(every[::-1], chunks))
        made.append(np.concatenate((forwards, backwards)))
    return made


def idle(ranks: int, microbatches: int, chunks: int, costs: ChunkCosts) -> float:
    """(p − 1)(f + b) with the costs of one chunk: 1/v of GPipe's idle time."""
    return (ranks - 1) * (costs.forward + costs.backward)


def peak(rank: int, ranks: int, microbatches: int, chunks: int) -> int:
    """All micro-batches of all chunks, on every rank."""
    return microbatches * chunks


def note(ranks: int, microbatches: int, chunks: int) -> str | None:
    """A chunk has to last until its first micro-batch has come round."""
    if microbatches >= ranks or chunks == 1:
        return None
    return (
        f"microbatches={microbatches} is less than stages={ranks}: each further chunk waits for its first "
        f"micro-batch, so the idle time is more than (p − 1)(f + b); the simulation holds"
    )


PLAN = Plan(
    name="looped-bfs",
    summary="v chunks a rank, each with all micro-batches at once: gathers sharded weights twice a step",
    source="Lamy-Poirier, Breadth-First Pipeline Parallelism, 2023, section 4",
    orders=orders,
    idle=idle,
    idle_text="(p − 1)(f + b) = (p − 1)(F + B)/v",
    peak=peak,
    peak_text="m v",
    note=note,
    remark=remark_of_one_chunk("gpipe with its backwards last to first, as long and as large"),
    rules={"torch": no_objection},
)
