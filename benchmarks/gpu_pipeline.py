"""Pipelines on GPUs over NCCL: parity and order, then makespan and actions against the simulation.

    python -m benchmarks.gpu_pipeline --output DIR
    python -m benchmarks.gpu_pipeline --output DIR --ranks 4 --seconds 150

Each stage is timed alone, one message too, and the schedule is simulated with these numbers; the step on all
GPUs is compared with that. Every part that ends is written at once, and one that fails says so.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import playbook as pb

RANKS, MICROBATCHES = 2, 8
MODEL: dict[str, Any] = {
    "name": "8 layers of 2048",
    "family": "llama",
    "layers": 8,
    "hidden": 2048,
    "heads": 16,
    "kv_heads": 8,
    "head_dim": 128,
    "ffn": 5632,
    "vocabulary": 8192,
    "max_sequence": 2048,
}
SHAPE: dict[str, Any] = {"sequence": 2048, "micro_batch": 8, "recipe": "bf16"}
"""So large that a stage of two layers takes more than 5 ms."""
SMALL: dict[str, Any] = {
    "name": "small",
    "family": "llama",
    "hidden": 128,
    "heads": 4,
    "kv_heads": 2,
    "head_dim": 32,
    "ffn": 256,
    "vocabulary": 512,
    "max_sequence": 64,
}
RUNS: tuple[tuple[str, str, int], ...] = (
    ("zbv", "hand", 2),
    ("1f1b", "hand", 1),
    ("dualpipe", "hand", 1),
    ("dualpipe-v", "hand", 2),
    ("zb-h1", "hand", 1),
    ("interleaved-1f1b", "hand", 2),
    ("gpipe", "hand", 1),
    ("1f1b", "library", 1),
    ("gpipe", "library", 1),
    ("interleaved-1f1b", "library", 2),
    ("zbv", "library", 2),
    ("dualpipe-v", "library", 2),
)
"""Schedule, by whom, and chunks of a rank; the most telling first."""

PATIENCE_S = 30.0
"""A part that takes longer hangs, and is ended."""
CHANNELS = "NCCL_MAX_P2P_NCHANNELS"
"""A message that waits for its receiver keeps so many of a GPU's processors from the compute beside it."""


def model_of(ranks: int) -> dict[str, Any]:
    """The large model with as many layers on each rank as two have."""
    layers = MODEL["layers"] * ranks // RANKS
    return {**MODEL, "layers": layers, "name": f"{layers} layers of {MODEL['hidden']}"}


def levers(schedule: str, by: str, chunks: int, **others: Any) -> dict[str, Any]:
    """Levers of a run."""
    return {"schedule": schedule, "by": by, "chunks": chunks, "microbatches": MICROBATCHES, **others}


def check(pool: Any, schedule: str, by: str, chunks: int, ranks: int = RANKS) -> dict[str, Any]:
    """Parity of a schedule in miniature, its order on the ranks, and its memory."""
    model = pb.Model(layers=ranks * chunks, **SMALL)
    sizes = {"model": model, "sequence": 64, "micro_batch": 1, "repeats": 1, "seeds": (0,)}
    run = pool.submit("pp", **levers(schedule, by, chunks, **sizes)).result(PATIENCE_S)
    return {
        "parity": run.values[0]["parity"],
        "in_order": in_order(run, schedule, chunks, ranks),
        "peak_bytes": [value["memory"]["peak_bytes"] for value in run.values],
        "peak_live": [value["pipeline"]["peak_live"] for value in run.values],
    }


def in_order(run: Any, schedule: str, chunks: int, ranks: int) -> bool:
    """Tell whether every rank ran the schedule's actions one after the other."""
    rows = run.timeline[run.timeline["lane"] == "compute"].sort_values("start_s", kind="stable")
    orders = pb.schedule(schedule, ranks, MICROBATCHES, chunks).orders
    return all(
        list(rows[rows["rank"] == rank]["label"]) == [str(action) for action in order]
        for rank, order in enumerate(orders)
    )


def time_schedule(schedule: str, by: str, chunks: int, model: dict[str, Any], shape: dict[str, Any]) -> Any:
    """Time a schedule of the large model on this rank; its weights are whatever its layers start with."""
    import torch

    from playbook.models.batch import make_batch
    from playbook.runtime.part import world
    from playbook.runtime.pipeline_levers import schedule_of
    from playbook.runtime.pipeline_rehearsal import rehearse
    from playbook.runtime.pipeline_steps import time_pipeline
    from playbook.runtime.rank import here
    from playbook.runtime.strategy_run import strategy_run
    from playbook.spec import Model
    from playbook.strategies.pp import ranks

    place = world(here().device, "pp")
    run = strategy_run("pp", place.ranks, **levers(schedule, by, chunks, **shape, model=Model(**model)))
    scenario = run.scenario
    order = schedule_of(scenario, run.own)
    torch.manual_seed(0)
    with torch.device(place.device):
        stages = ranks.hold(scenario.model, place, schedule=order, stage_layers=scenario.stage_layers)
    part = getattr(ranks, f"by_{by}")(stages.to(torch.bfloat16), place, schedule=order)
    batch = make_batch(
        scenario.model,
        sequences=scenario.global_batch,
        sequence=scenario.workload.sequence,
        seed=0,
        device=place.device,
    )
    microbatches = batch.cut(MICROBATCHES)
    rehearse(stages, order, place.rank, microbatches, split=by == "hand" and order.splits_backward)
    part.forward_backward(microbatches)
    step = time_pipeline(run, place, part, microbatches, "measured:nccl")
    peak_bytes = torch.cuda.max_memory_allocated(place.device)
    part.close()
    rows = [
        {name: row[name] for name in ("op", "kind", "start_s", "duration_s", "bytes")} for row in step.rows
    ]
    return {**step.summary, "peak_bytes": peak_bytes, "rows": rows}


def measure_one(pool: Any, schedule: str, by: str, chunks: int) -> dict[str, Any]:
    """Makespan and actions of one schedule, beside what the simulation says."""
    model = model_of(pool.ranks)
    values = pool.submit(time_schedule, schedule, by, chunks, model, SHAPE).result(PATIENCE_S).values
    rows = [value.pop("rows") for value in values]
    waiting = [sum(row["duration_s"] for row in own if row["kind"] == "wait") for own in rows]
    lives = {
        f"{name}_of_ranks": [value.pop(name) for value in values] for name in ("peak_bytes", "peak_live")
    }
    return {
        **values[0],
        **lives,
        "waiting_s_of_ranks": waiting,
        "actions_s": medians([row for own in rows for row in own]),
    }


def medians(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Median seconds of the actions of each kind on each stage, as they ran inside the schedule."""
    found: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        if row["kind"] not in ("wait", "send"):
            stage = row["op"].rpartition("/")[2]
            found.setdefault(row["kind"], {}).setdefault(stage, []).append(row["duration_s"])
    return {
        kind: {stage: statistics.median(times) for stage, times in sorted(stages.items())}
        for kind, stages in found.items()
    }


def attempt(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Run one part; a part that fails says so and leaves the others their turn."""
    begin_s = time.monotonic()
    try:
        told = work()
    except Exception as failed:
        told = {"failed": f"{type(failed).__name__}: {failed}"[:2000]}
    return {**told, "seconds": round(time.monotonic() - begin_s, 2)}


def with_a_pool(
    pools: list[Any], work: Callable[[Any], dict[str, Any]], ranks: int = RANKS
) -> dict[str, Any]:
    """Run one part; after a failure the next one gets fresh ranks."""
    if not pools:
        pools.append(pb.Pool(ranks=ranks, backend="nccl"))
    told = attempt(lambda: work(pools[0]))
    if "failed" in told:
        pools.pop().close()
    return told


def measure_pipelines(
    keep: Callable[[dict[str, Any]], object], seconds: float, ranks: int = RANKS
) -> dict[str, Any]:
    """Everything, as one JSON object; `keep` is called with what is known after every part."""
    import torch

    begin_s = time.monotonic()
    told: dict[str, Any] = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"{torch.cuda.device_count()} x {torch.cuda.get_device_name(0)}",
        "torch": torch.__version__,
        "command": "python -m benchmarks.gpu_pipeline",
        "settings": {CHANNELS: os.environ[CHANNELS]},
        "model": model_of(ranks),
        "shape": {**SHAPE, "ranks": ranks, "microbatches": MICROBATCHES},
        "runs": [],
    }
    pools: list[Any] = []
    for by in ("hand", "library"):
        for kind, work in (("timed", measure_one), ("checked", partial(check, ranks=ranks))):
            for schedule, _, chunks in (run for run in RUNS if run[1] == by):
                head = {"schedule": schedule, "by": by, "chunks": chunks, "part": kind}
                if time.monotonic() - begin_s > seconds:
                    row = {"failed": f"not tried: {seconds:g} seconds were over"}
                else:
                    given = {"schedule": schedule, "by": by, "chunks": chunks}
                    row = with_a_pool(pools, lambda pool, w=work, g=given: w(pool, **g), ranks)
                told["runs"].append({**head, **row})
                keep(told)
                print(line(told["runs"][-1]), flush=True)
    for pool in pools:
        pool.close()
    return told


def line(row: dict[str, Any]) -> str:
    """One part as text."""
    head = f"{row['part']:8} {row['schedule']:18} {row['by']:8} {row.get('seconds', 0):5.1f} s  "
    if "failed" in row:
        return head + row["failed"].splitlines()[0][:200]
    if "parity" in row:
        return f"{head}parity {row['parity']['ok']}, in order {row['in_order']}"
    if "error" not in row:
        return f"{head}makespan {row['makespan_s']:.4f} s; {row.get('not_tried')}"
    kinds = ", ".join(f"{kind} {error:.1%}" for kind, error in row["errors"].items())
    return (
        f"{head}{row['predicted_makespan_s']:.4f} s  {row['makespan_s']:.4f} s  {row['error']:+.2%}  {kinds}"
    )


def main() -> None:
    """Measure, print and write gpu_pipeline.json."""
    arguments = argparse.ArgumentParser(prog="python -m benchmarks.gpu_pipeline", description=__doc__)
    arguments.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    arguments.add_argument("--seconds", type=float, default=80.0, help="no part begins later")
    arguments.add_argument("--ranks", type=int, default=RANKS, help="GPUs, each a rank")
    given = arguments.parse_args()
    os.environ.setdefault(CHANNELS, "4")
    given.output.mkdir(parents=True, exist_ok=True)
    name = "gpu_pipeline" if given.ranks == RANKS else f"gpu_pipeline_{given.ranks}"
    file = given.output / f"{name}.json"
    measure_pipelines(
        lambda told: file.write_text(json.dumps(told, indent=1) + "\n"), given.seconds, given.ranks
    )


if __name__ == "__main__":
    main()
