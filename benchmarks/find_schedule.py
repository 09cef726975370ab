"""Search for orders of the six uneven pipelines: what is found, the best known, the bound, and the seconds.

    python -m benchmarks.find_schedule --output DIR

writes find_schedule.json; `python -m benchmarks find_schedule` has the same in the table's words.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from benchmarks.figure import Figure, sample
from benchmarks.machine import describe_machine
from playbook.planner import find_schedule
from playbook.planner.found import FoundSchedule

CASES = Path(__file__).parent / "uneven_pipelines.json"
BUDGET_S = 2.0


def cases() -> dict[str, dict[str, Any]]:
    """Name → arguments of `find_schedule`."""
    read = json.loads(CASES.read_text(encoding="utf-8"))["cases"]
    return {case["name"]: {k: v for k, v in case.items() if k not in ("name", "reason")} for case in read}


def row(found: FoundSchedule, name: str, seconds: float) -> dict[str, Any]:
    known = found.best_known
    return {
        "case": name,
        "copies": found.setting.copies,
        "best_known": known.name if known else None,
        "best_known_makespan": round(known.makespan, 6) if known else None,
        "found_makespan": round(found.makespan, 6),
        "lower_bound": round(found.lower_bound, 6),
        "gap": round(found.gap, 6),
        "peak_live": found.simulation.peak_live,
        "seconds": round(seconds, 3),
    }


def measure(tiny: bool = False) -> list[Figure]:
    """Search each case once for its result and then a few times for its seconds; one case if `tiny`."""
    figures = []
    for name, case in list(cases().items())[: 1 if tiny else None]:
        result = find_schedule(**case, copies=1)
        known = result.best_known
        rival = f"{known.name} {known.makespan:.2f}" if known else "no known order under the cap"
        figures.append(
            Figure(
                what=f"order found for {name} (p = {case['stages']}, m = {case['microbatches']}): "
                f"{result.makespan:.2f}, best known {rival}, bound {result.lower_bound:.2f}",
                seconds=sample(lambda c=case: find_schedule(**c, copies=1), times=1 if tiny else 3, warmup=0),
                budget_s=BUDGET_S,
            )
        )
    return figures


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    given = arguments.parse_args()
    rows = []
    for name, case in cases().items():
        for copies in (1, 2):
            begin = time.perf_counter()
            found = find_schedule(**case, copies=copies)
            rows.append(row(found, name, time.perf_counter() - begin))
    told = {"machine": describe_machine(), "command": "python -m benchmarks.find_schedule", "rows": rows}
    text = json.dumps(told, indent=1)
    print(text)
    (given.output / "find_schedule.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
