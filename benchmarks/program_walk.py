"""The step program: one rank of 70B at operation resolution, and all ranks of a pipeline by action."""

from __future__ import annotations

import playbook as pb
from benchmarks.figure import Figure, sample
from playbook.predict.pipeline import pipeline_timeline
from playbook.predict.stages import rank_memories


def one_rank(model: str, microbatches: int) -> pb.Scenario:
    """Rank 0 of eight shards that accumulate over their micro-batches."""
    workload = pb.Workload(
        sequence=4096, global_batch=8 * microbatches, recipe="fsdp2-mixed", recompute="full"
    )
    return pb.Scenario(pb.model(model), workload, pb.Layout(dp=8, zero=3), framework="transformers")


def pipeline(model: str, stages: int, microbatches: int, schedule: str = "interleaved-1f1b") -> pb.Scenario:
    """Every rank of a pipeline with two chunks a rank."""
    layout = pb.Layout(pp=stages, schedule=schedule, chunks=2)
    return pb.Scenario(pb.model(model), pb.Workload(sequence=4096, global_batch=microbatches), layout)


CLOCKED = ("interleaved-1f1b", "zbv")


def clocked(name: str, s: pb.Scenario, times: int) -> Figure:
    """Time every action of a pipeline too, and lay each rank's bytes on the clock."""
    return Figure(
        what=f"the same under {name}, each action timed and its bytes on the clock",
        seconds=sample(lambda: pipeline_timeline(s), times),
        budget_s=0.02,
    )


def measure(tiny: bool = False) -> list[Figure]:
    """Measure both at the sizes of the budgets; a small model if `tiny`."""
    model, microbatches, stages = ("toy-15m", 2, 3) if tiny else ("llama-3.1-70b", 16, 8)
    single = one_rank(model, microbatches)
    every = pipeline(model, stages, 4 * microbatches)
    times = 2 if tiny else 15
    return [
        Figure(
            what=f"program of {model}, {microbatches} micro-batches, operation resolution, built and walked",
            seconds=sample(lambda: pb.program(single, rank=0).memory().peak_bytes, times),
            budget_s=0.03,
        ),
        Figure(
            what=f"all ranks of {model}, p = {stages}, m = {4 * microbatches}, v = 2, with memory",
            seconds=sample(lambda: [memory.peak_bytes for memory in rank_memories(every)], times),
            budget_s=0.02,
        ),
        *(clocked(name, pipeline(model, stages, 4 * microbatches, name), times) for name in CLOCKED),
    ]
