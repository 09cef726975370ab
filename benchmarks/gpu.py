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
from pathlib import Path
from typing import Any

import playbook as pb

STRATEGIES = ("ddp", "fsdp2")
LEVERS: dict[str, dict[str, Any]] = {
    "ddp": {"recipe": "fp32", "micro_batch": 2, "sequence": 2048},
    "fsdp2": {"recipe": "fsdp2-mixed", "micro_batch": 2, "sequence": 2048},
}


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


def strategy_row(pool: Any, strategy: str, by: str, model: str) -> dict[str, Any]:
    """Parity, bytes and peak of one strategy's run, beside the traced and the predicted peak."""
    from playbook.runtime.strategy_run import strategy_run

    levers = {**LEVERS[strategy], "model": model, "kernels": "cuda", "by": by}
    run = pool.submit(strategy, **levers).result(300)
    value = max(run.values, key=lambda one: one["memory"]["peak_bytes"])
    scenario = strategy_run(strategy, pool.ranks, **levers).scenario
    predicted, traced = pb.training_memory(scenario), pb.trace(scenario)
    peak = value["memory"]["peak_bytes"]
    return {
        "strategy": strategy,
        "by": by,
        "ranks": pool.ranks,
        "backend": run.backend,
        "model": model,
        **LEVERS[strategy],
        "parity": run.values[0]["parity"],
        "step_median_s": value["seconds"],
        "measured_peak_bytes": peak,
        "measured_reserved_bytes": value["memory"]["reserved_bytes"],
        "measured_instant": value["memory"]["instant"],
        "traced_peak_bytes": traced.peak_bytes,
        "traced_over_measured": traced.peak_bytes / peak - 1,
        "formula_peak_bytes": predicted.peak_bytes,
        "formula_instant": predicted.instant,
        "formula_over_measured": predicted.peak_bytes / peak - 1,
        "wire_bytes": value["traffic"]["wire_bytes"],
        "formula_wire_bytes": float(pb.traffic(scenario).table["wire_bytes"].sum()),
    }


def pools(gpus: int) -> list[tuple[int, str]]:
    """Pools to try: ranks that share a GPU, one rank over NCCL, and one a GPU where there are several."""
    return [(2, "shared-gpu"), (4, "shared-gpu"), (1, "nccl"), *([(gpus, "nccl")] if gpus > 1 else [])]


def attempt(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Run one part; a part that fails says so and leaves the others their turn."""
    try:
        return work()
    except Exception as failed:
        return {"failed": f"{type(failed).__name__}: {failed}"[:2000]}


def measure_gpus(model: str) -> dict[str, Any]:
    """Everything, as one JSON object."""
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
    for ranks, backend in pools(gpus):
        name = f"{ranks} ranks, {backend}"
        told["pools"][name] = attempt(lambda r=ranks, b=backend: pool_life(r, b))
        with pb.Pool(ranks=ranks, backend=backend) as pool:
            for strategy in STRATEGIES:
                for by in ("hand", "library"):
                    row = attempt(lambda p=pool, s=strategy, b=by: strategy_row(p, s, b, model))
                    told["runs"].append({"pool": name, "strategy": strategy, "by": by, **row})
                    print(json.dumps(told["runs"][-1]), flush=True)
    return told


def main() -> None:
    """Measure, print and write gpu.json."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    arguments.add_argument("--model", default="llama-3.2-1b")
    given = arguments.parse_args()
    told = measure_gpus(given.model)
    (given.output / "gpu.json").write_text(json.dumps(told, indent=1) + "\n")
    print(json.dumps(told["pools"], indent=1))


if __name__ == "__main__":
    main()
