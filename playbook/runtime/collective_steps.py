"""What a rank does for a collective's run: its transfers step by step, the library's call, both timed."""

import math
import time
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from playbook.collectives import Collective
from playbook.runtime.collective_moves import Chunks, by_library, first, take_step
from playbook.runtime.collective_run import CollectiveRun, expected_states
from playbook.runtime.collective_times import time_sizes
from playbook.runtime.part import Place, world
from playbook.runtime.rank import current_phase, emit, here
from playbook.runtime.torch_private import quiet_renamed_collectives
from playbook.runtime.traffic import Call, TrafficCounter, traffic_rows, traffic_summary

States = list[list[list[float | None]]]
"""Step × rank × chunk; None where a rank holds nothing."""

SHOWN = torch.float64


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
    times = time_sizes(run, made, place)
    sent = [call for call in calls if call.collective == "send"]
    return {
        "states": states,
        "library": library,
        "parity": {"ok": all(row["ok"] for row in checks), "dtype": "fp64", "tolerance": 0.0},
        "traffic": traffic_summary(sent, place.ranks),
        "steps": len(made.steps),
        "bytes_sent_per_rank": made.bytes_sent_per_rank(shown_bytes(run, made)),
        "times": times,
        "tables": {
            "parity": checks if place.rank == 0 else [],
            "traffic": traffic_rows(sent, place.ranks, step=0, source=source),
        },
    }


def shown_bytes(run: CollectiveRun, made: Collective) -> int:
    """Full buffer of the run that is shown, in bytes."""
    return made.operation.parts(made.ranks) * run.elements * SHOWN.itemsize


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
