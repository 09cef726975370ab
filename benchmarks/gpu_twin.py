"""Twins on a GPU against the predicted memory, and the twin of two GPUs against the two.

    python -m benchmarks.gpu_twin --output DIR --seconds 500
    CUDA_VISIBLE_DEVICES=1 python -m benchmarks.gpu_twin --output DIR --part 1/2   (beside 0/2 on GPU 0)
    python -m benchmarks.gpu_twin --output DIR --pair [--ranks 4]

The grid of `twin_cases` in its order, in a process of its own; a case that ends or hangs it says so, and the
next one gets a fresh process. Every result is written at once; no case begins after so many seconds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import playbook as pb
from benchmarks.twin_cases import CASES, Case
from benchmarks.twin_pair import measure_pairs
from playbook.compare import predicted_instants

PAIR = 2
"""GPUs that a twin is held against by default."""

HANGS_AFTER_S = 120.0
"""A case that has not ended by then is stopped."""

LEFT_BYTES = 16 * 2**20
"""What a case may leave behind on the GPU: 0.1 % of the peaks here."""


def take(case: Case, device: Any, hold: Any) -> dict[str, Any]:
    """Predict one case, take its twin, and compare."""
    from playbook.runtime.twin_step import run_twin

    scenario = case.scenario
    predicted = pb.training_memory(scenario, rank=case.rank)
    found = run_twin(
        scenario, case.rank, network=case.network, device=device, hold=hold, repeats=case.repeats
    )
    return {
        "predicted_peak_bytes": predicted.peak_bytes,
        "predicted_instant": predicted.instant,
        "measured_peak_bytes": found["peak_bytes"],
        "measured_reserved_bytes": found["reserved_bytes"],
        "error": predicted.peak_bytes / found["peak_bytes"] - 1,
        "seconds": found["seconds"],
        "exposed_seconds": found["exposed_s"],
        "instants": found["instants"],
        "predicted_instants": predicted_instants(predicted.walk),
    }


def describe(number: int, case: Case) -> dict[str, Any]:
    """What a row says of its case."""
    return {
        "case": number,
        "model": case.scenario.model.name,
        "framework": case.framework,
        "world": case.scenario.world,
        "rank": case.rank,
        "layout": case.layout,
        "work": case.work,
        "network": case.network,
    }


def part_of(part: str) -> list[tuple[int, Case]]:
    """Cases of a part of the grid with their numbers: "1/2" is every second one, from the second on."""
    first, of = (int(number) for number in part.split("/"))
    return list(enumerate(CASES))[first::of]


def run_child(first: int, until: float, file: Path, part: str) -> None:
    """Measure the cases of a part from its `first` on in this process."""
    import torch

    from playbook.runtime.twin_clock import make_hold
    from playbook.runtime.twin_step import clear

    device = torch.device("cuda", 0)
    torch.cuda.set_device(device)
    hold = make_hold(device)
    for number, case in part_of(part)[first:]:
        if time.time() > until:
            return
        begin = time.perf_counter()
        try:
            row = take(case, device, hold)
        except Exception as failed:
            row = {"failed": f"{type(failed).__name__}: {failed}"[:1000]}
        clear(device)
        left = torch.cuda.memory_allocated(device)
        took = {"left_bytes": left, "took_s": time.perf_counter() - begin}
        append(file, {**describe(number, case), **row, **took})
        if left > LEFT_BYTES:
            return  # the parent goes on with a clean process


def append(file: Path, row: dict[str, Any]) -> None:
    """Write one result."""
    with file.open("a") as stream:
        stream.write(json.dumps(row) + "\n")


def rows_of(file: Path) -> list[dict[str, Any]]:
    """Results so far."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def run_grid(folder: Path, seconds: float, part: str = "0/1") -> None:
    """Measure a part of the grid, in as many processes as it takes."""
    file, until = folder / f"gpu_twin.{part.split('/')[0]}.jsonl", time.time() + seconds
    chosen = part_of(part)
    file.unlink(missing_ok=True)
    while (done := len(rows_of(file))) < len(chosen) and time.time() < until:
        run_until_stuck(file, done, until, part)
        if len(rows_of(file)) == done and time.time() < until:
            append(file, {**describe(*chosen[done]), "failed": "its process ended or hung"})
        write_summary(folder)
    write_summary(folder)


def run_until_stuck(file: Path, first: int, until: float, part: str) -> None:
    """Start a child and stop it when a case takes too long."""
    command = [sys.executable, "-m", "benchmarks.gpu_twin", "--first", str(first), "--part", part]
    child = subprocess.Popen([*command, "--until", str(until), "--output", str(file.parent)])
    count, since = first, time.time()
    try:
        while child.poll() is None:
            time.sleep(0.5)
            if (now := len(rows_of(file))) > count:
                count, since = now, time.time()
                write_summary(file.parent)
            if time.time() - since > HANGS_AFTER_S:
                return
    finally:
        child.kill()
        child.wait()


def write_summary(folder: Path) -> None:
    """Write gpu_twin.json: the machine, the errors' median and worst, and every row of all parts."""
    import torch

    rows = [row for file in folder.glob("gpu_twin.*.jsonl") for row in rows_of(file)]
    errors = sorted(abs(row["error"]) for row in rows if "error" in row)
    told = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": gpu_names(),
        "torch": torch.__version__,
        "transformers": transformers_version(),
        "command": "python -m benchmarks.gpu_twin",
        "cases": len(CASES),
        "measured": len(errors),
        "failed": sum("failed" in row for row in rows),
        "median_error": statistics.median(errors) if errors else None,
        "worst_error": errors[-1] if errors else None,
        "rows": sorted(rows, key=lambda row: row["case"]),
    }
    (folder / "gpu_twin.json").write_text(json.dumps(told, indent=1) + "\n")


def transformers_version() -> str:
    """Version of the package whose code some cases run."""
    try:
        return version("transformers")
    except PackageNotFoundError:
        return "not installed"


def gpu_names() -> str:
    """The GPUs by their driver's tool, so that this process needs no context of its own."""
    listed = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        names = subprocess.run(listed, capture_output=True, text=True, check=True).stdout.split("\n")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    found = [name for name in names if name]
    return f"{len(found)} x {found[0]}" if found else "unknown"


def main() -> None:
    """Measure the grid, or the pair."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    arguments.add_argument("--seconds", type=float, default=500.0)
    arguments.add_argument("--pair", action="store_true")
    arguments.add_argument("--ranks", type=int, default=PAIR, help="with --pair, how many GPUs")
    arguments.add_argument("--part", default="0/1", help="part of the grid, as in 1/2, for a GPU of its own")
    arguments.add_argument("--first", type=int)
    arguments.add_argument("--until", type=float, default=0.0)
    given = arguments.parse_args()
    given.output.mkdir(parents=True, exist_ok=True)
    if given.first is not None:
        file = given.output / f"gpu_twin.{given.part.split('/')[0]}.jsonl"
        run_child(given.first, given.until, file, given.part)
    elif given.pair:
        name = "gpu_twin_pair" if given.ranks == PAIR else f"gpu_twin_{given.ranks}"
        measure_pairs(given.output / f"{name}.json", gpu_names(), given.ranks)
    else:
        run_grid(given.output, given.seconds, given.part)
        print((given.output / "gpu_twin.json").read_text())


if __name__ == "__main__":
    main()
