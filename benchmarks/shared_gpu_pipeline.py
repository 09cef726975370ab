"""All twelve schedules by hand as four ranks of one shared GPU: order, parity and memory, no times.
"say nothing there.

    python -m benchmarks.shared_gpu_pipeline --output DIR

Writes shared_gpu_pipeline.json after every schedule. `--backend gloo` tries the same on a processor.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import playbook as pb
from benchmarks.gpu_pipeline import attempt, check
from playbook.schedules import plans
from playbook.spec.layout import ONE_CHUNK

RANKS = 4


def main() -> None:
    """Check every schedule, and say what each did."""
    arguments = argparse.ArgumentParser(prog="python -m benchmarks.shared_gpu_pipeline", description=__doc__)
    arguments.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    arguments.add_argument("--backend", default="shared-gpu")
    given = arguments.parse_args()
    given.output.mkdir(parents=True, exist_ok=True)
    rows = []
    with pb.Pool(ranks=RANKS, backend=given.backend) as pool:
        for name in plans():
            chunks = 1 if name in ONE_CHUNK else 2
            told = attempt(lambda name=name, chunks=chunks: check(pool, name, "hand", chunks, RANKS))
            rows.append({"schedule": name, "chunks": chunks, **told})
            print(rows[-1], flush=True)
            text = json.dumps({"backend": given.backend, "rows": rows}, indent=1)
            (given.output / "shared_gpu_pipeline.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
