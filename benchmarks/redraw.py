"""From a slider to a new picture in the kernel: schedule, simulation, packed blocks and words."""

from __future__ import annotations

from time import process_time

from benchmarks.figure import Figure, sample
from widgets.pipeline_explorer import PipelineExplorer


def measure(tiny: bool = False) -> list[Figure]:
    """Measure the processor time of moving the micro-batches of a pipeline of about 10 000 blocks."""
    stages, first, times = (2, 4, 2) if tiny else (8, 290, 20)
    explorer = PipelineExplorer(stages=stages, microbatches=first, chunks=2, schedules=["interleaved-1f1b"])

    def move() -> None:
        explorer.microbatches += 1

    seconds = sample(move, times, warmup=2, clock=process_time)
    assert not explorer.error
    assert not explorer.refusal
    blocks = 2 * 2 * stages * explorer.microbatches
    return [
        Figure(what=f"slider to new picture, {blocks:,} blocks, kernel CPU", seconds=seconds, budget_s=0.02)
    ]
