"""One whole step under a cut: seconds by simulation, and each rank's peak, of temporaries too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

from playbook.planner.cut_costs import CutCosts
from playbook.predict.pipeline import pipeline_timeline
from playbook.spec import Scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class CutStep:
    """One step under a cut."""

    seconds: float
    """From the first action to the end of the step."""
    bytes: tuple[int, ...]
    """Peak of each rank."""


StepOf = Callable[[tuple[int, ...]], CutStep]
"""Cut → its step."""


def predicted_step(s: Scenario) -> StepOf:
    """Steps by the scenario's own step program, whose peaks `playbook memory` gives too."""

    @cache
    def step(cut: tuple[int, ...]) -> CutStep:
        told = pipeline_timeline(replace(s, layout=replace(s.layout, stage_layers=cut)))
        return CutStep(seconds=told.seconds, bytes=tuple(map(int, told.peak_bytes)))

    return step


def step_of_costs(costs: CutCosts) -> StepOf:
    """Steps by costs that were given: no messages, and no bytes but state and what forward keeps."""

    def step(cut: tuple[int, ...]) -> CutStep:
        forward, inputs, weights = (
            costs.by_stage(cut, field).tolist()
            for field in ("forward_s", "backward_input_s", "backward_weight_s")
        )
        timed = costs.order.simulate(forward=forward, backward_input=inputs, backward_weight=weights)
        return CutStep(seconds=timed.makespan, bytes=tuple(round(size) for size in costs.rank_bytes(cut)))

    return step


def calibrated(costs: CutCosts, step_of: StepOf, cut: tuple[int, ...]) -> CutCosts:
    """The costs with as much beside state and activations as the peaks under a cut show."""
    beside = tuple(
        most - (kept - extra)
        for most, kept, extra in zip(
            step_of(cut).bytes, costs.rank_bytes(cut).tolist(), costs.extra_bytes, strict=True
        )
    )
    return replace(costs, extra_bytes=beside)


def raised(costs: CutCosts, step_of: StepOf, cut: tuple[int, ...]) -> CutCosts:
    """The costs with no less on any rank than the peaks under a cut show too."""
    seen = calibrated(costs, step_of, cut).extra_bytes
    return replace(costs, extra_bytes=tuple(map(max, costs.extra_bytes, seen)))
