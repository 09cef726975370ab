"""What a rank does for a collective's run: its transfers step by step, the library's call, both timed."""

import math
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from playbook.collectives import Collective, Step
from playbook.runtime.collective_run import CollectiveRun, expected_states, own_value
from playbook.runtime.part import Place, world
from playbook.runtime.rank import current_phase, emit, here
from playbook.runtime.torch_private import quiet_renamed_collectives
from playbook.runtime.traffic import Call, TrafficCounter, traffic_rows, traffic_summary

Chunks = dict[int, Tensor]
"""What a rank holds, by chunk."""
States = list[list[list[float | None]]]
"""Step × rank × chunk; None where a rank holds nothing."""

SHOWN, TIMED = torch.float64, torch.float32


def run_collective(run: CollectiveRun) -> dict[str, Any]:
    """Run one collective on this rank: step by step, by the library, then both on the clock."""
    quiet_renamed_collectives()
    seat, made = here(), run.collective
    place = world(seat.device, "dp")
    source = "measured:nccl" if seat.backend == "nccl" else "measured:gloo"
    states, calls = show(run, made, place)
    current_phase("library")
    library = everyones(held(by_library(made, place, first(made, place, run.elements, SHOWN)), made), place)
    checks = check(made, states, library)
    times = [row for size in shuffled(run.sizes) for row in time_size(run, made, place, size)]
    sent = [call for call in calls if call.collective == "send"]
    return {
        "states": states,
        "library": library,
        "parity": {"ok": all(row["ok"] for row in checks), "dtype": "fp64", "tolerance": 0.0},
        "traffic": traffic_summary(sent, place.ranks),
        "steps": len(made.steps),
        "bytes_sent_per_rank": made.bytes_sent_per_rank(shown_bytes(run, made)),
        "times": sorted(times, key=lambda row: (row["bytes"], row["by"])),
        "tables": {
            "parity": checks if place.rank == 0 else [],
            "traffic": traffic_rows(sent, place.ranks, step=0, source=source),
        },
    }


def shown_bytes(run: CollectiveRun, made: Collective) -> int:
    """Full buffer of the run that is shown, in bytes."""
    return made.operation.parts(made.ranks) * run.elements * SHOWN.itemsize


def first(made: Collective, place: Place, elements: int, dtype: torch.dtype) -> Chunks:
    """Make what this rank holds before the first step."""
    start = made.states[0][place.rank]
    return {
        chunk: torch.full((elements,), own_value(place.rank, chunk), dtype=dtype, device=place.device)
        for chunk, held_by in enumerate(start)
        if held_by is not None
    }


def show(run: CollectiveRun, made: Collective, place: Place) -> tuple[States, list[Call]]:
    """Take the collective's steps, noting what every rank holds around each; count the messages."""
    chunks = first(made, place, run.elements, SHOWN)
    found, counter = [held(chunks, made)], TrafficCounter(place.axis)
    report(0, found[0])
    for number, step in enumerate(made.steps, start=1):
        current_phase(f"step {number} of {len(made.steps)}")
        with counter:
            chunks = take_step(chunks, step, place)
        found.append(held(chunks, made))
        report(number, found[-1])
        time.sleep(run.pause_s)
    by_rank = everyones([value for state in found for value in state], place)
    length = made.chunks
    return [
        [values[step * length : (step + 1) * length] for values in by_rank] for step in range(len(found))
    ], counter.calls


def report(step: int, values: list[float | None]) -> None:
    """Stream what this rank holds after a step."""
    emit("step", f"step {step}", step=step, values=values)


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


def held(chunks: Chunks, made: Collective) -> list[float | None]:
    """One number for each chunk, None where this rank holds nothing; NaN if a chunk's numbers differ."""
    return [one_number(chunks[chunk]) if chunk in chunks else None for chunk in range(made.chunks)]


def one_number(chunk: Tensor) -> float:
    """The number that all of a chunk consists of."""
    return chunk[0].item() if bool((chunk == chunk[0]).all()) else math.nan


def everyones(values: list[float | None], place: Place) -> list[list[float | None]]:
    """Every rank's numbers, by rank."""
    nothing = -1.0  # own values are positive, and so are their sums
    own = torch.tensor(
        [nothing if value is None else value for value in values], dtype=SHOWN, device=place.device
    )
    found = [torch.empty_like(own) for _ in range(place.ranks)]
    dist.all_gather(found, own, group=place.group)
    return [[None if value == nothing else value for value in of_rank.tolist()] for of_rank in found]


def check(made: Collective, states: States, library: list[list[float | None]]) -> list[dict[str, Any]]:
    """Compare every state with the symbolic one, and the last with the library's result."""
    rows = [
        parity_row(f"state after step {step}", expected, found)
        for step, (expected, found) in enumerate(zip(expected_states(made), states, strict=True))
    ]
    wanted = [
        [value if chunk in made.result(rank) else None for chunk, value in enumerate(values)]
        for rank, values in enumerate(states[-1])
    ]
    return [*rows, parity_row("result of the library", library, wanted)]


def parity_row(
    quantity: str, expected: list[list[float | None]], found: list[list[float | None]]
) -> dict[str, Any]:
    """One row of the parity table; whole numbers are compared exactly."""
    pairs = [
        (a, b) for left, right in zip(expected, found, strict=True) for a, b in zip(left, right, strict=True)
    ]
    known = [(a, b) for a, b in pairs if a is not None and b is not None]
    baseline, value = (max((pair[side] for pair in known), default=0.0) for side in (0, 1))
    worst = max((abs(a - b) for a, b in known), default=0.0)
    ok = all(a == b for a, b in pairs)
    error = worst / baseline if baseline else 0.0
    return {
        "scenario": "",
        "quantity": quantity,
        "baseline": baseline,
        "value": value,
        "relative_error": error if ok or error else math.inf,
        "tolerance": 0.0,
        "ok": ok,
    }


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
    emit("progress", "sizes timed", done=1, total=len(run.sizes))
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
