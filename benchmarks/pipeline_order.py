"""Order and timing of multi-chunk schedules, against PyTorch's generation of the order alone."""

from __future__ import annotations

from time import process_time

from benchmarks.figure import Figure, sample
from playbook.program.schedule import schedule

SIZES = ((16, 256, 0.05), (64, 512, 0.4))
"""Ranks, micro-batches, budget in seconds; two chunks a rank."""

IN_TORCH = {
    "interleaved-1f1b": "Interleaved1F1B",
    "looped-bfs": "LoopedBFS",
    "interleaved-zero-bubble": "InterleavedZeroBubble",
    "zbv": "ZBVZeroBubble",
    "dualpipe-v": "DualPipeV",
}
"""Multi-chunk schedules that torch makes too → torch's name."""


def order_and_time(name: str, stages: int, microbatches: int) -> None:
    schedule(name, stages, microbatches, 2).simulate()


def torch_order(name: str, stages: int, microbatches: int) -> None:
    from torch.distributed.pipelining._schedule_visualizer import get_schedule_ops

    get_schedule_ops(IN_TORCH[name], stages, microbatches, num_stages_per_rank=2)


def compare(name: str, stages: int, microbatches: int, budget: float | None, times: int) -> Figure:
    """Both in processor time, which another process on the machine does not lengthen."""
    return Figure(
        what=f"order and timing of {name}, p = {stages}, m = {microbatches}, v = 2, CPU",
        seconds=sample(lambda: order_and_time(name, stages, microbatches), times, clock=process_time),
        budget_s=budget,
        peer="order alone by torch.distributed.pipelining",
        peer_seconds=sample(
            lambda: torch_order(name, stages, microbatches),
            times=3 if microbatches <= 256 else 1,
            warmup=0,
            clock=process_time,
        ),
        wanted_ratio=10,
    )


def measure(tiny: bool = False) -> list[Figure]:
    """Measure every schedule at both sizes; at a smaller one if `tiny`."""
    sizes = ((4, 8, None),) if tiny else SIZES
    torch_order("interleaved-1f1b", 2, 2)  # torch is imported and warm before its clock starts
    return [
        compare(name, stages, microbatches, budget, times=2 if tiny else 7)
        for stages, microbatches, budget in sizes
        for name in IN_TORCH
    ]
