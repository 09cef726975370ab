"""Emulated pipelines on four real ranks against the simulation of the same order.

    python -m benchmarks.pipeline_ranks

Real processes and messages, sleeps in place of compute: each schedule at p = 4 and m = 8, the median of
several steps. Prints a table and writes pipeline_ranks.json. Other work on the machine shows as error.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import playbook as pb
from benchmarks.machine import describe_machine
from playbook.schedules import find_plan, plans

RANKS, MICROBATCHES = 4, 8
WANTED = 0.03
"""Largest error of the makespan that is within budget."""

TINY = {"hidden": 64, "heads": 2, "kv_heads": 1, "head_dim": 32, "ffn": 96, "vocabulary": 256}


def levers(name: str, by: str, unit_s: float) -> dict[str, Any]:
    """Levers of one emulated run; the model is as small as its stages allow."""
    chunks = stages_of_rank(name)
    model = pb.Model(name="tiny", family="llama", layers=RANKS * chunks, max_sequence=64, **TINY)  # type: ignore[arg-type]
    return {
        "by": by,
        "schedule": name,
        "chunks": chunks,
        "microbatches": MICROBATCHES,
        "model": model,
        "sequence": 8,
        "micro_batch": 1,
        "parity": "off",
        "repeats": 1,
        "unit_s": unit_s,
    }


def stages_of_rank(name: str) -> int:
    """Chunks of a rank: two where the schedule can have them."""
    plan = find_plan(name)
    return 1 if plan.refuse(RANKS, MICROBATCHES, 2) else 2


def emulate(pool: Any, name: str, by: str, unit_s: float, times: int) -> dict[str, Any]:
    """Run one schedule several times and keep the step with the median makespan."""
    found = []
    for _ in range(times):
        run = pool.submit("pp", **levers(name, by, unit_s)).result(120)
        found.append(run.values[0]["pipeline"])
    middle = sorted(found, key=lambda step: step["makespan_s"])[len(found) // 2]
    return {
        "schedule": name,
        "by": by,
        "chunks": stages_of_rank(name),
        "simulated_s": middle["predicted_makespan_s"],
        "emulated_s": middle["makespan_s"],
        "error": middle["error"],
        "errors_by_kind": middle["errors"],
        "every_emulated_s": [step["makespan_s"] for step in found],
    }


def measure_ranks(
    names: list[str], unit_s: float, times: int, tell: Callable[[dict[str, Any]], None]
) -> list[dict[str, Any]]:
    """Every schedule by hand, and by library where that has it."""
    from playbook.strategies.pp.plan import LIBRARY_SCHEDULES

    rows = []
    with pb.Pool(ranks=RANKS, backend="gloo") as pool:
        for name in names:
            for by in ("hand", "library") if name in LIBRARY_SCHEDULES else ("hand",):
                rows.append(emulate(pool, name, by, unit_s, times))
                tell(rows[-1])
    return rows


def line(row: dict[str, Any]) -> str:
    """One row as text."""
    kinds = ", ".join(f"{kind} {error:.2%}" for kind, error in row["errors_by_kind"].items())
    return (
        f"{row['schedule']:24} {row['by']:8} {row['simulated_s']:.3f} s  {row['emulated_s']:.3f} s  "
        f"{row['error']:+.2%}  {kinds}"
    )


def main() -> None:
    """Measure, print and write pipeline_ranks.json."""
    arguments = argparse.ArgumentParser(prog="python -m benchmarks.pipeline_ranks", description=__doc__)
    arguments.add_argument("names", nargs="*", metavar="SCHEDULE", help="all if none is given")
    arguments.add_argument("--unit-ms", type=float, default=40.0, help="shortest action, in milliseconds")
    arguments.add_argument("--times", type=int, default=3, help="steps of each; the median counts")
    arguments.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    given = arguments.parse_args()
    machine = describe_machine()
    rows = measure_ranks(
        given.names or list(plans()),
        given.unit_ms / 1e3,
        given.times,
        lambda row: print(line(row), flush=True),
    )
    by_hand = [abs(row["error"]) for row in rows if row["by"] == "hand"]
    told = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine,
        "command": " ".join(["python -m benchmarks.pipeline_ranks", *sys.argv[1:]]),
        "source": "emulated",
        "ranks": RANKS,
        "microbatches": MICROBATCHES,
        "unit_s": given.unit_ms / 1e3,
        "median_error": statistics.median(by_hand),
        "largest_error": max(by_hand),
        "within_3_percent": sum(error <= WANTED for error in by_hand),
        "schedules": len(by_hand),
        "rows": rows,
    }
    given.output.mkdir(parents=True, exist_ok=True)
    (given.output / "pipeline_ranks.json").write_text(json.dumps(told, indent=1) + "\n")
    print(f"within 3 %: {told['within_3_percent']} of {told['schedules']} by hand; {machine}")


if __name__ == "__main__":
    main()
