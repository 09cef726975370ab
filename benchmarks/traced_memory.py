"""Predicted memory against the traced memory of real code, on scenarios that were chosen beforehand.

`python -m benchmarks.traced_memory` traces them one after the other, some 10 minutes on a quiet machine, and
writes `results/traced_memory.json`. With names of cases as arguments only their rows are made anew.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import playbook as pb
from benchmarks.machine import describe_machine
from benchmarks.traced_memory_cases import CASES, Case

RESULTS = Path(__file__).parent / "results" / "traced_memory.json"
GOALS = {"median_error": 0.005, "worst_error": 0.02, "least_match_rate": 0.99}
DEADLINE_S = 1200.0


def compare(name: str, case: Case) -> dict[str, Any]:
    """Predict and trace one rank; `error` is (predicted − traced) / traced."""
    scenario, begin = case.scenario, time.monotonic()
    predicted = pb.program(scenario, rank=case.rank).memory()
    traced = pb.trace(scenario, rank=case.rank, deadline_s=DEADLINE_S)
    joined = pb.compare(pb.program(scenario, rank=case.rank), traced)
    return {
        "name": name,
        "model": case.model,
        "parameters": scenario.model.parameters,
        "world": scenario.world,
        "rank": case.rank,
        "layout": case.layout,
        "workload": case.workload,
        "microbatches": case.microbatches,
        "predicted_bytes": int(predicted.peak_bytes),
        "traced_bytes": traced.peak_bytes,
        "error": predicted.peak_bytes / traced.peak_bytes - 1,
        "predicted_instant": predicted.instant,
        "traced_instant": traced.instant,
        "predicted_terms": {term: int(size) for term, size in predicted.terms.items()},
        "traced_terms": {row["term"]: int(row["bytes"]) for row in traced.terms},
        "match_rate": joined.match_rate,
        "payloads_that_differ": len(joined.payload_mismatches),
        "operations": len(joined.observed),
        "seconds": round(time.monotonic() - begin, 1),
    }


def summary(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Median and worst of |error|, and the least match rate."""
    errors = [abs(row["error"]) for row in rows]
    return {
        "cases": len(rows),
        "median_error": statistics.median(errors),
        "worst_error": max(errors),
        "least_match_rate": min(row["match_rate"] for row in rows),
    }


def told(row: dict[str, Any]) -> str:
    """One line of a case."""
    return (
        f"{row['name']}: {row['predicted_bytes'] / 1e9:.3f} GB predicted at {row['predicted_instant']}, "
        f"{row['traced_bytes'] / 1e9:.3f} traced at {row['traced_instant']}, {row['error']:+.3%}, "
        f"match {row['match_rate']:.2%} of {row['operations']}, {row['seconds']} s"
    )


def table(rows: dict[str, dict[str, Any]], machine: str) -> dict[str, Any]:
    """The table of the rows that there are, in the order of the cases."""
    kept = [rows[name] for name in CASES if name in rows]
    return {
        "command": "python -m benchmarks.traced_memory",
        "machine": machine,
        "date": datetime.now(UTC).date().isoformat(),
        "goals": GOALS,
        "summary": summary(kept),
        "rows": kept,
    }


def main(names: list[str]) -> None:
    """Trace the named cases, or all, and put their rows into the table."""
    known = json.loads(RESULTS.read_text())["rows"] if names and RESULTS.exists() else []
    rows, machine = {row["name"]: row for row in known}, describe_machine()
    for name in names or CASES:
        rows[name] = compare(name, CASES[name])
        print(told(rows[name]), flush=True)
        RESULTS.write_text(json.dumps(table(rows, machine), indent=1) + "\n", encoding="utf-8")
    print(json.loads(RESULTS.read_text())["summary"])


if __name__ == "__main__":
    main(sys.argv[1:])
