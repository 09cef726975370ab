"""How far predicted memory is from what was traced, taken by twins, and published: the README's table and
picture.

    python -m benchmarks.memory_figure

Reads the result files of `traced_memory`, `gpu_twin` and `memory_tables`; writes results/memory_accuracy.md
and results/memory_accuracy.svg, which shows the first two.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.log_plot import Curve, log_plot
from benchmarks.ultrascale import runs, split

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One kind of evidence: what it is, and pairs of predicted and observed bytes."""

    name: str
    goal: str
    file: str
    """Its results."""
    pairs: tuple[tuple[float, float], ...]

    @property
    def errors(self) -> list[float]:
        """Absolute relative errors of the predictions, in order."""
        return sorted(abs(predicted / observed - 1) for predicted, observed in self.pairs)

    @property
    def line(self) -> str:
        """Row of the table."""
        errors = self.errors
        last = float(np.quantile(errors, 0.9))
        figures = " | ".join(f"{error:.3%}" for error in (statistics.median(errors), last, errors[-1]))
        return f"| [{self.name}](benchmarks/results/{self.file}) | {len(errors)} | {figures} | {self.goal} |"


def load(name: str) -> dict[str, Any]:
    """One file of results."""
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def traces() -> Source:
    """Traces of the real code, same kernel set."""
    rows = load("traced_memory.json")["rows"]
    pairs = ((row["predicted_bytes"], row["traced_bytes"]) for row in rows)
    return Source(
        name="traced, same kernels",
        goal="median ≤ 0.5 %, worst ≤ 2 %",
        file="traced_memory.json",
        pairs=tuple(pairs),
    )


def twins() -> Source:
    """Twins on a GPU."""
    rows = [row for row in load("gpu_twin.json")["rows"] if "error" in row]
    pairs = ((row["predicted_peak_bytes"], row["measured_peak_bytes"]) for row in rows)
    return Source(
        name="twins on an H200",
        goal="median ≤ 1 %, worst ≤ 4 %, 40 rows",
        file="gpu_twin.json",
        pairs=tuple(pairs),
    )


def nanotron() -> Source:
    """Published runs of the half that was held out when constants were fitted."""
    held_out, told = split()["held_out"], load("memory_ultrascale.json")
    wanted = {run.row for run in runs() if run.group in held_out}
    rows = (dict(zip(told["columns"], row, strict=True)) for row in told["rows"])
    return Source(
        name="nanotron's published runs, reserved, held out",
        goal="median ≤ 6 %, p90 ≤ 15 %",
        file="memory_ultrascale.json",
        pairs=tuple((row["told by speed GiB"], row["published GiB"]) for row in rows if row["row"] in wanted),
    )


def torchtitan() -> Source:
    """Published runs of several compilers, dtypes and schedules; nothing is fitted."""
    rows = load("memory_torchtitan.json")["rows"]
    return Source(
        name="torchtitan's published runs, reserved",
        goal="all fit their card",
        file="memory_torchtitan.json",
        pairs=tuple((row["reserved GiB"], row["published GiB"]) for row in rows),
    )


def table(sources: Iterable[Source]) -> str:
    """Markdown."""
    head = "| peak of a rank against | rows | median error | p90 | worst | goal |"
    return "\n".join((head, "| --- " * 6 + "|", *(source.line for source in sources))) + "\n"


def figure(sources: Iterable[Source]) -> str:
    """Predicted against observed, in GB, as SVG."""
    known = [source for source in sources if source.pairs]
    every = [value / 1e9 for source in known for pair in source.pairs for value in pair]
    ends = (min(every), max(every))
    clouds = []
    for source in known:
        points = sorted((observed / 1e9, predicted / 1e9) for predicted, observed in source.pairs)
        x, y = zip(*points, strict=True)
        clouds.append(Curve(label=source.name, x=x, y=y, joined=False))
    line = Curve(label="predicted = observed", x=ends, y=ends, dashed=True)
    title = "Peak memory of a rank, predicted and observed"
    return log_plot([line, *clouds], title, "observed, GB", "predicted, GB")


def main() -> None:
    """Write the table and the picture."""
    sources = [traces(), twins()]
    lines = table([*sources, nanotron(), torchtitan()])
    (RESULTS / "memory_accuracy.md").write_text(lines, encoding="utf-8")
    (RESULTS / "memory_accuracy.svg").write_text(figure(sources), encoding="utf-8")


if __name__ == "__main__":
    main()
