"""Order and timing of a multi-chunk schedule, against PyTorch's generation of the order alone."""

from __future__ import annotations

from benchmarks.figure import Figure, sample
from playbook.program.schedule import schedule

SIZES = ((16, 256, 0.05), (64, 512, 0.4))
"""Ranks, micro-batches, budget in seconds; two chunks a rank."""


def order_and_time(stages: int, microbatches: int) -> None:
    schedule("interleaved-1f1b", stages, microbatches, 2).simulate()


def torch_order(stages: int, microbatches: int) -> None:
    from torch.distributed.pipelining._schedule_visualizer import get_schedule_ops

    get_schedule_ops("Interleaved1F1B", stages, microbatches, num_stages_per_rank=2)


def measure(tiny: bool = False) -> list[Figure]:
    """Measure both sizes; a smaller one if `tiny`."""
    sizes = ((4, 8, None),) if tiny else SIZES
    torch_order(2, 2)  # torch is imported and warm before its clock starts
    return [
        Figure(
            what=f"order and timing of interleaved 1F1B, p = {stages}, m = {microbatches}, v = 2",
            seconds=sample(lambda p=stages, m=microbatches: order_and_time(p, m), times=2 if tiny else 7),
            budget_s=budget,
            peer="order alone by torch.distributed.pipelining",
            peer_seconds=sample(
                lambda p=stages, m=microbatches: torch_order(p, m),
                times=3 if microbatches <= 256 else 1,
                warmup=0,
            ),
            wanted_ratio=10,
        )
        for stages, microbatches, budget in sizes
    ]
