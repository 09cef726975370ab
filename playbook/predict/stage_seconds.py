"""Seconds of each stage's forward, backward, and backward in two parts, for one micro-batch."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from playbook.program.assemble import assemble
from playbook.program.lay import Stage
from playbook.program.order import Run, accumulate
from playbook.program.rates import Rates
from playbook.program.schedule import Schedule
from playbook.program.simulation import Simulation
from playbook.program.timeline import Timeline, ring_seconds
from playbook.program.traffic import PAIR
from playbook.schedules.packed import B, I, unpack
from playbook.spec import Scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSeconds:
    """One stage's turns, each timed alone.

    Parameters
    ----------
    forward, backward
        Seconds of a forward, and of a backward in one (the sum of its parts if no stage runs it in one).
    backward_input, backward_weight
        Seconds of the parts of a backward in two; 0 where no stage runs it so.
    after
        Seconds after the last backward: sum with a copy of the stage, optimizer, what returns parameters.
    whole, split
        The rows of a forward with either backward; None for one that the schedule does not have.
    """

    forward: float
    backward: float
    backward_input: float
    backward_weight: float
    after: float
    whole: Timeline | None
    split: Timeline | None


def stage_seconds(
    s: Scenario, rates: Rates, made: Schedule, stages: Mapping[int, Stage]
) -> tuple[StageSeconds, ...]:
    """Time every stage of a schedule, copies included; equal stages are timed once.

    Parameters
    ----------
    s, rates
        The scenario, and its cluster's rates.
    made, stages
        Its schedule, and every stage laid out.

    Notes
    -----
    A stage's rows run on their streams as in a step of one micro-batch, so that gathers and reductions
    overlap with products of the same turn, not of the next. Messages between stages are the schedule's, not
    the stage's.
    """
    kinds = {kind for order in made.packed for kind in np.unique(unpack(order)[1]).tolist()}
    axes = {**s.layout.group_sizes, "pp": 1}  # no message of a stage to itself
    timed: dict[int, StageSeconds] = {}
    for slot, stage in stages.items():
        if id(stage) not in timed:
            timed[id(stage)] = turns_of(slot, stage, rates, axes, kinds)
    return tuple(timed[id(stages[slot])] for slot in range(len(made.placement)))


def turns_of(slot: int, stage: Stage, rates: Rates, axes: Mapping[str, int], kinds: set[int]) -> StageSeconds:
    """Time one stage with the kinds of backward that its schedule has."""
    forward = backward = passing = left = after = 0.0
    whole = split = None
    rest = (Run("G", slot, 0),) if reduces_after(stage) else ()
    if I in kinds:
        order = (Run("F", slot, 0), Run("I", slot, 0), Run("W", slot, 0), *rest)
        split = assemble({slot: stage}, order, axes=axes).timeline(rates)
        forward, passed, until = ends_of(split, stage, "FIW")
        passing, left, after = passed - forward, until - passed, split.seconds - until
        backward = passing + left
    if B in kinds:
        whole = assemble({slot: stage}, (*accumulate(1, slot), *rest), axes=axes).timeline(rates)
        forward, until = ends_of(whole, stage, "FB")
        backward, after = until - forward, whole.seconds - until
    return StageSeconds(
        forward=forward,
        backward=backward,
        backward_input=passing,
        backward_weight=left,
        after=after + copies_seconds(stage, rates),
        whole=whole,
        split=split,
    )


def reduces_after(stage: Stage) -> bool:
    """Whether a stage reduces its gradients behind its last backward, in a segment of its own."""
    return any(op.axis == "dp" for block in stage.blocks for op in block.copies)


def copies_seconds(stage: Stage, rates: Rates) -> float:
    """Seconds of the sum of a stage's gradients with those of its copy, if it has one elsewhere."""
    if not any(op.axis == "pp" for block in stage.blocks for op in block.copies):
        return 0.0
    summed = int(stage.segment("G").payload.sum())
    return ring_seconds("all_reduce", summed, PAIR, rates.links.get("pp"))


def ends_of(timeline: Timeline, stage: Stage, letters: str) -> list[float]:
    """End of each segment: of its last row, or of an earlier segment's if that is later."""
    end = timeline.start_s + timeline.duration_s
    rows = np.cumsum([len(stage.kept(letter)) for letter in letters])
    return [float(end[:count].max(initial=0.0)) for count in rows]


def message_bytes(s: Scenario) -> int:
    """Bytes of one message between stages: the residual stream of a micro-batch, or the rank's part of it."""
    tokens = s.workload.micro_batch * s.workload.sequence // s.layout.cp
    size = s.recipe.compute_bytes * tokens * s.model.hidden
    return size // s.layout.tp if s.layout.sequence_parallel else size


def simulate_stages(
    s: Scenario, rates: Rates, made: Schedule, stages: tuple[StageSeconds, ...]
) -> Simulation:
    """Lay each stage's seconds along the schedule."""
    return made.simulate(
        forward=[stage.forward for stage in stages],
        backward=[stage.backward for stage in stages],
        backward_input=[stage.backward_input for stage in stages],
        backward_weight=[stage.backward_weight for stage in stages],
        link=rates.links["pp"],
        message_bytes=float(message_bytes(s)),
    )


def after_last(made: Schedule, stages: tuple[StageSeconds, ...]) -> float:
    """Seconds after the last action: those of the rank whose stages need most."""
    return max(
        sum(stage.after for stage, owner in zip(stages, made.placement, strict=True) if owner == rank)
        for rank in range(made.stages)
    )
