"""How the time of ordering and timing a pipeline grows with its actions, with a plot."""

from __future__ import annotations

from pathlib import Path
from time import process_time

import numpy as np

from benchmarks.figure import Figure, sample
from benchmarks.log_plot import Curve, log_plot
from benchmarks.pipeline_order import IN_TORCH, order_and_time, torch_order
from playbook.program.schedule import schedule

PLOT = Path(__file__).parent / "results" / "pipeline_growth.svg"
STAGES = 16
OURS = tuple(32 * 2**step for step in range(8))
"""Micro-batches of each size, at 16 ranks of two chunks: 2 048 to 262 144 actions of interleaved 1F1B."""
TORCH = OURS[:5]
"""Where torch is measured too: its time grows faster than the actions."""


def actions_of(name: str, microbatches: int) -> int:
    return sum(len(order) for order in schedule(name, STAGES, microbatches, 2).packed)


def exponent(actions: tuple[float, ...], seconds: tuple[float, ...]) -> float:
    """Slope of the least-squares line through the logarithms."""
    return float(np.polyfit(np.log(actions), np.log(seconds), 1)[0])


def curve_of(name: str, microbatches: tuple[int, ...], times: int) -> tuple[Curve, tuple[float, ...]]:
    """Actions and least seconds of each size, and every sample of the largest."""
    samples = [
        sample(lambda m=m: order_and_time(name, STAGES, m), times, clock=process_time) for m in microbatches
    ]
    actions = tuple(float(actions_of(name, m)) for m in microbatches)
    return Curve(label=name, x=actions, y=tuple(min(taken) for taken in samples)), samples[-1]


def torch_curve(microbatches: tuple[int, ...]) -> Curve:
    torch_order("interleaved-1f1b", 2, 2)  # torch is imported and warm before its clock starts
    seconds = [
        min(sample(lambda m=m: torch_order("interleaved-1f1b", STAGES, m), 2, warmup=0, clock=process_time))
        for m in microbatches
    ]
    actions = tuple(float(actions_of("interleaved-1f1b", m)) for m in microbatches)
    return Curve(label="torch, interleaved-1f1b, order alone", x=actions, y=tuple(seconds), dashed=True)


def measure(tiny: bool = False) -> list[Figure]:
    """Measure six sizes and more, fit the exponent, and draw the plot unless `tiny`."""
    sizes, torch_sizes, times = ((8, 16, 32), (8, 16), 1) if tiny else (OURS, TORCH, 5)
    curves, figures = [torch_curve(torch_sizes)], []
    for name in IN_TORCH:
        curve, largest = curve_of(name, sizes, times)
        curves.append(curve)
        power = exponent(curve.x, curve.y)
        figures.append(
            Figure(
                what=f"growth of {name}, p = {STAGES}, v = 2, {len(sizes)} sizes from {curve.x[0]:,.0f} to "
                f"{curve.x[-1]:,.0f} actions: CPU time ∝ actions^{power:.2f}; here the largest",
                seconds=largest,
            )
        )
    if not tiny:
        theirs, *ours = (exponent(curve.x, curve.y) for curve in curves)
        title = (
            f"Time ∝ actions^{min(ours):.2f} to {max(ours):.2f} for order and timing, "
            f"actions^{theirs:.2f} for torch's order alone"
        )
        PLOT.write_text(log_plot(curves, title, "actions", "CPU seconds"), encoding="utf-8")
    return figures
