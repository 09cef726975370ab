"""What real GPUs do: pool start, cancel, a killed rank, and ddp and fsdp2 with parity and peaks.

    python -m benchmarks.gpu --output DIR

Ranks share one GPU over gloo, and take one each over NCCL for as many GPUs as there are. The measured peak is
the allocator's; beside it stand the traced one and the predicted one of the same scenario.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import playbook as pb

RUNS: tuple[tuple[str, str, str], ...] = (
    ("ddp", "hand", "bf16-fp32master"),
    ("ddp", "library", "bf16-fp32master"),
    ("fsdp2", "hand", "bf16-fp32master"),
    ("fsdp2", "library", "fsdp2-mixed"),
)
"""Strategy, by whom, and recipe."""
SIZES = {"micro_batch": 2, "sequence": 2048}


def reduce_ones(numel: int) -> float:
    """All-reduce a buffer of ones on this rank's device, and return its first value."""
    import torch
    import torch.distributed as dist

    from playbook.runtime.rank import here

    ones = torch.ones(numel, device=here().device)
    dist.all_reduce(ones)
    torch.cuda.synchronize()
    return float(ones[0])


def hang() -> None:
    """Rank 0 never joins the all-reduce that the others wait in; alone, it never ends its kernel queue."""
    from playbook.runtime.rank import current_phase, emit, here

    current_phase("an all-reduce that rank 0 never joins")
    emit("mark", "hanging")
    if here().rank == 0:
        time.sleep(600)
    reduce_ones(1)


def die() -> None:
    """Reduce once, then the last rank is killed, and the others wait for it."""
    from playbook.runtime.rank import current_phase, here

    current_phase("backward of layer 3")
    reduce_ones(1)
    if here().rank == here().ranks - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    reduce_ones(1)


def seconds_of(work: Callable[[], Any]) -> float:
    """Wall time of one call."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def pool_life(ranks: int, backend: str) -> dict[str, Any]:
    """Start, warm job, cancel of a hung collective and a killed rank, of one pool."""
    begin = time.perf_counter()
    with pb.Pool(ranks=ranks, backend=backend) as pool:
        pool.submit(reduce_ones, 4).result(180)
        told: dict[str, Any] = {"start_s": time.perf_counter() - begin}
        warm = sorted(seconds_of(lambda: pool.submit(reduce_ones, 1_000_000).result(60)) for _ in range(20))
        told["warm_job_median_s"] = warm[10]
        job = pool.submit(hang)
        while sum(event["kind"] == "mark" for event in job.events) < ranks:
            time.sleep(0.01)
        time.sleep(0.3)
        told["cancel_hung_s"] = seconds_of(lambda: (job.cancel(), expect(job, pb.JobCancelled)))
        told["usable_again_s"] = seconds_of(lambda: pool.submit(reduce_ones, 4).result(180))
        begin = time.perf_counter()
        told["killed_rank_message"] = str(expect(pool.submit(die), pb.RankFailed))
        told["killed_rank_named_s"] = time.perf_counter() - begin
        pool.submit(reduce_ones, 4).result(180)
    return told


def expect(job: Any, kind: type[Exception]) -> Exception:
    """Return the exception that ends a job."""
    try:
        job.result(120)
    except kind as ended:
        return ended
    raise AssertionError(f"{job} ended without {kind.__name__}")


@cache
def trace_once(scenario: pb.Scenario) -> Any:
    """Trace a scenario; by hand and by library share it."""
    return pb.trace(scenario)


def strategy_row(pool: Any, strategy: str, by: str, recipe: str, model: str) -> dict[str, Any]:
    """Parity, bytes and peak of one strategy's run, beside the traced and the predicted peak."""
    from playbook.runtime.strategy_run import strategy_run

    levers = {**SIZES, "recipe": recipe, "model": model, "kernels": "cuda", "by": by}
    run = pool.submit(strategy, **levers).result(300)
    value = max(run.values, key=lambda one: one["memory"]["peak_bytes"])
    scenario = strategy_run(strategy, pool.ranks, **levers).scenario
    peak = value["memory"]["peak_bytes"]
    return {
        "recipe": recipe,
        **SIZES,
        "parity": run.values[0]["parity"],
        "step_median_s": value["seconds"],
        "measured_peak_bytes": peak,
        "measured_reserved_bytes": value["memory"]["reserved_bytes"],
        "measured_instant": value["memory"]["instant"],
        "traced": attempt(lambda: peak_of(trace_once(scenario), peak)),
        "formula": attempt(lambda: peak_of(pb.training_memory(scenario), peak)),
        "wire_bytes": value["traffic"]["wire_bytes"],
        "formula_wire_bytes": attempt(
            lambda: {"bytes": float(pb.traffic(scenario).table["wire_bytes"].sum())}
        ),
    }


def peak_of(told: Any, measured_bytes: int) -> dict[str, Any]:
    """Peak of a prediction, and how far it lies from the measured one."""
    return {"peak_bytes": told.peak_bytes, "over_measured": told.peak_bytes / measured_bytes - 1}


def lives(gpus: int) -> list[tuple[int, str]]:
    """Pools whose life is timed: ranks that share a GPU, one over NCCL, one a GPU where there are several."""
    return [(4, "shared-gpu"), (1, "nccl"), *([(gpus, "nccl")] if gpus > 1 else [])]


def crews(gpus: int) -> list[tuple[int, str]]:
    """Pools that run the strategies; two ranks that share a GPU have room for the default model."""
    return [*([(gpus, "nccl")] if gpus > 1 else []), (2, "shared-gpu"), (1, "nccl")]


def attempt(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Run one part; a part that fails says so and leaves the others their turn."""
    try:
        return work()
    except Exception as failed:
        return {"failed": f"{type(failed).__name__}: {failed}"[:2000]}


def measure_gpus(model: str, keep: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Everything, as one JSON object; `keep` is called with what is known after every part."""
    import torch

    gpus = torch.cuda.device_count()
    told: dict[str, Any] = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"{gpus} x {torch.cuda.get_device_name(0)}",
        "torch": torch.__version__,
        "command": f"python -m benchmarks.gpu --model {model}",
        "pools": {},
        "runs": [],
    }
    for ranks, backend in lives(gpus):
        told["pools"][f"{ranks} ranks, {backend}"] = attempt(lambda r=ranks, b=backend: pool_life(r, b))
        keep(told)
    for ranks, backend in crews(gpus):
        with pb.Pool(ranks=ranks, backend=backend) as pool:
            for strategy, by, recipe in RUNS:
                head = {"strategy": strategy, "by": by, "ranks": ranks, "backend": backend, "model": model}
                row = attempt(lambda p=pool, s=strategy, b=by, r=recipe: strategy_row(p, s, b, r, model))
                told["runs"].append({**head, **row})
                keep(told)
    return told


def main() -> None:
    """Measure, print and write gpu.json."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    arguments.add_argument("--model", default="llama-3.2-1b")
    given = arguments.parse_args()
    file = given.output / "gpu.json"

    def keep(so_far: dict[str, Any]) -> None:
        file.write_text(json.dumps(so_far, indent=1) + "\n")

    print(json.dumps(measure_gpus(given.model, keep), indent=1))


if __name__ == "__main__":
    main()
