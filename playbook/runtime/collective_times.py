"""The time of a collective's steps and of the library's call, on buffers of given sizes."""

import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from playbook.collectives import Collective
from playbook.runtime.collective_moves import Chunks, by_library, first, take_step
from playbook.runtime.collective_run import CollectiveRun
from playbook.runtime.part import Place
from playbook.runtime.rank import current_phase, emit

TIMED = torch.float32


def time_sizes(run: CollectiveRun, made: Collective, place: Place) -> list[dict[str, Any]]:
    """Time every size; rows by size, hand before library."""
    rows = []
    for done, size in enumerate(shuffled(run.sizes), start=1):
        rows += time_size(run, made, place, size)
        emit("progress", "sizes timed", done=done, total=len(run.sizes))
    return sorted(rows, key=lambda row: (row["bytes"], row["by"]))


def shuffled(sizes: tuple[int, ...]) -> list[int]:
    """Sizes in an order that all ranks share: a burst of load then hits no neighbouring sizes."""
    return random.Random(0).sample(sizes, len(sizes))


def time_size(run: CollectiveRun, made: Collective, place: Place, size_bytes: int) -> list[dict[str, Any]]:
    """Time the steps and the library's call on one size, in turn, until the slowest rank's end."""
    current_phase(f"timing {size_bytes} bytes")
    elements = max(1, made.chunk_bytes(size_bytes) // TIMED.itemsize)
    chunks = first(made, place, elements, TIMED)
    ways: dict[str, Callable[[], Any]] = {
        "hand": lambda: all_steps(chunks, made, place),
        "library": lambda: by_library(made, place, chunks),
    }
    found: dict[str, list[float]] = {by: [] for by in ways}
    for turn in range(run.repeats + 1):
        for by, call in ways.items():
            seconds = timed(call, place)
            if turn:
                found[by].append(seconds)
    return [time_row(made, size_bytes, by, seconds) for by, seconds in found.items()]


def all_steps(chunks: Chunks, made: Collective, place: Place) -> Chunks:
    """Take every step."""
    for step in made.steps:
        chunks = take_step(chunks, step, place)
    return chunks


def timed(call: Callable[[], Any], place: Place) -> float:
    """Seconds of the slowest rank."""
    dist.barrier(group=place.group)
    start_s = time.monotonic()
    call()
    if place.device.type == "cuda":
        torch.cuda.synchronize(place.device)
    value = torch.tensor([time.monotonic() - start_s], dtype=torch.float64, device=place.device)
    dist.all_reduce(value, op=dist.ReduceOp.MAX, group=place.group)
    return value.item()


def time_row(made: Collective, size_bytes: int, by: str, seconds: list[float]) -> dict[str, Any]:
    """The fastest and the median of one size, with the bandwidths of nccl-tests for the fastest."""
    fastest = min(seconds)
    return {
        "bytes": size_bytes,
        "by": by,
        "seconds": fastest,
        "median_s": statistics.median(seconds),
        "algbw": size_bytes / fastest,
        "busbw": size_bytes / fastest * made.bus_factor,
    }
