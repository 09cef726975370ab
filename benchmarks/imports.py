"""`import playbook` in a fresh interpreter."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.figure import Figure

_CODE = "import time; begin = time.perf_counter(); import playbook; print(time.perf_counter() - begin)"


def import_seconds() -> float:
    """Time the import alone, without the interpreter's own start."""
    done = subprocess.run([sys.executable, "-c", _CODE], check=True, capture_output=True, text=True)
    return float(done.stdout)


def measure(tiny: bool = False) -> list[Figure]:
    """Measure some fresh interpreters, the first of which is left out."""
    import_seconds()
    taken = tuple(import_seconds() for _ in range(1 if tiny else 7))
    return [Figure(what="`import playbook`", seconds=taken, budget_s=0.3)]
