"""A collective on real tensors: what a rank holds at first, one step of transfers, and the library's call."""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from playbook.collectives import Collective, Step
from playbook.runtime.collective_run import own_value
from playbook.runtime.part import Place

Chunks = dict[int, Tensor]
"""What a rank holds, by chunk."""


def first(made: Collective, place: Place, elements: int, dtype: torch.dtype) -> Chunks:
    """Make what this rank holds before the first step."""
    start = made.states[0][place.rank]
    return {
        chunk: torch.full((elements,), own_value(place.rank, chunk), dtype=dtype, device=place.device)
        for chunk, held_by in enumerate(start)
        if held_by is not None
    }


def take_step(chunks: Chunks, step: Step, place: Place) -> Chunks:
    """Send and receive one step's chunks; all of them are read as they were before it.

    Communicates point to point, each chunk once.
    """
    memory = message_memory(place)
    like = next(iter(chunks.values()))
    moves, arriving = [], []
    for src, dst, chunk, reduce in step:
        if src == place.rank:
            moves.append(dist.P2POp(dist.isend, chunks[chunk].to(memory), group=place.group, group_peer=dst))
        if dst == place.rank:
            arriving.append((chunk, reduce, torch.empty_like(like, device=memory)))
            moves.append(dist.P2POp(dist.irecv, arriving[-1][2], group=place.group, group_peer=src))
    for work in dist.batch_isend_irecv(moves) if moves else ():
        work.wait()
    after = dict(chunks)
    for chunk, reduce, message in arriving:
        message = message.to(place.device)
        after[chunk] = after[chunk] + message if reduce else message
    return after


def message_memory(place: Place) -> torch.device:
    """Where messages lie: on the device under NCCL; gloo dies on a CUDA tensor sent point to point."""
    return place.device if place.over_nccl else torch.device("cpu")


def by_library(made: Collective, place: Place, chunks: Chunks) -> Chunks:
    """Do the same by one call of torch.distributed; returns this rank's result by chunk."""
    if made.op == "send_recv":
        after = take_step(chunks, made.steps[0], place) if made.steps else chunks
        return {chunk: after[chunk] for chunk in made.result(place.rank)}
    wanted = made.result(place.rank)
    buffer = torch.cat([chunks[chunk] for chunk in sorted(chunks)])
    out = buffer.new_empty(len(wanted) * next(iter(chunks.values())).numel())
    LIBRARY[made.op](out, buffer, place.group)
    return dict(zip(wanted, out.chunk(len(wanted)), strict=True))


def all_reduce(out: Tensor, buffer: Tensor, group: dist.ProcessGroup) -> None:
    """Sum into `out`."""
    dist.all_reduce(out.copy_(buffer), group=group)


LIBRARY: dict[str, Callable[[Tensor, Tensor, dist.ProcessGroup], Any]] = {
    "all_reduce": all_reduce,
    "all_gather": lambda out, buffer, group: dist.all_gather_into_tensor(out, buffer, group=group),
    "reduce_scatter": lambda out, buffer, group: dist.reduce_scatter_tensor(out, buffer, group=group),
    "all_to_all": lambda out, buffer, group: dist.all_to_all_single(out, buffer, group=group),
}
"""The library's call of each operation, into an output that is ready."""
