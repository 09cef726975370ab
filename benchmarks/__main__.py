"""Run the benchmarks, print the table and write it to `benchmarks/results/`."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from benchmarks.figure import as_markdown
from benchmarks.machine import describe_machine
from benchmarks.registry import benchmarks

RESULTS = Path(__file__).parent / "results"


def main() -> None:
    """Measure what was asked for, one after the other: two at once would measure each other."""
    every = benchmarks()
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {', '.join(every)}; all if none is given"
    )
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder for table.md and table.json")
    given = parser.parse_args()
    unknown = sorted(set(given.names) - set(every))
    if unknown:
        parser.error(f"{unknown[0]!r} is no benchmark; use {', '.join(every)}")
    machine = describe_machine()
    figures = []
    for name in given.names or every:
        print(f"{name} …", flush=True)
        figures += every[name]()
    text = as_markdown(figures, machine)
    print(f"\n{text}")
    given.output.mkdir(parents=True, exist_ok=True)
    (given.output / "table.md").write_text(text, encoding="utf-8")
    rows = [asdict(figure) | {"ratio": figure.ratio, "met": figure.met} for figure in figures]
    (given.output / "table.json").write_text(
        json.dumps({"machine": machine, "figures": rows}, indent=1) + "\n"
    )


if __name__ == "__main__":
    main()
