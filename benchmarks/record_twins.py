"""Writes the twins that ship with the library from the results of a run on a GPU.

    python -m benchmarks.record_twins

Reads results/gpu_twin.json, traces what a chapter's table needs (a few minutes), writes
playbook/recorded/twins.json.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import playbook as pb
from benchmarks.twin_cases import CASES

RESULTS = Path(__file__).parent / "results" / "gpu_twin.json"
SHIPPED = Path(__file__).parents[1] / "playbook" / "recorded" / "twins.json"


def record(row: dict[str, Any], trace: Any = pb.trace) -> dict[str, Any]:
    """One twin as it ships: scenario, rank, what was measured, and the trace where a chapter shows it."""
    case = CASES[row["case"]]
    made: dict[str, Any] = {
        "scenario": json.loads(case.scenario.to_json()),
        "rank": case.rank,
        "peak_bytes": row["measured_peak_bytes"],
        "reserved_bytes": row["measured_reserved_bytes"],
        "seconds": row["seconds"],
    }
    if case.chapter:
        made |= {
            "chapter": case.chapter,
            "traced_peak_bytes": trace(case.scenario, rank=case.rank).peak_bytes,
        }
    return made


def main() -> None:
    """Read, trace, write."""
    told = json.loads(RESULTS.read_text(encoding="utf-8"))
    kept = {
        "machine": told["machine"].split(" x ")[-1],
        "date": told["date"],
        "torch": told["torch"],
        "command": told["command"],
        "twins": [record(row) for row in told["rows"] if "error" in row],
    }
    SHIPPED.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
