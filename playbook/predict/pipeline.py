"""A pipeline's step on one clock: when each action runs, in seconds, and what each rank holds meanwhile, in
bytes."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from playbook.predict.orders import columns_of, near, pipeline
from playbook.predict.rates import rates_of
from playbook.predict.stage_seconds import (
    StageSeconds,
    after_last,
    message_bytes,
    simulate_stages,
    stage_seconds,
)
from playbook.predict.stages import context, lay_distinct, rank_memories
from playbook.predict.unbuilt import refuse_unbuilt
from playbook.program.order import RUNS
from playbook.program.rates import Rates
from playbook.program.schedule import Schedule
from playbook.program.simulation import Simulation
from playbook.program.summary import RankMemory
from playbook.schedules.packed import F, W
from playbook.spec import Scenario
from playbook.units import counted, gb, seconds

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)  # no slots: what is read off is kept
class PipelineTimeline:
    """One step of a scenario's pipeline.

    Parameters
    ----------
    scenario
        What was asked.
    order
        Each rank's actions.
    timed
        When each action runs, in seconds; messages travel at the link of neighbouring stages.
    stages
        Seconds of each stage, copies included.
    memory
        Each rank's memory: bytes before each of its actions and the peak inside it, then those of sums with
        copies and of the optimizer step.
    after_s
        Seconds from the last action to the end of the step.
    capacity_bytes
        Memory of the GPU as its driver reports it.
    """

    scenario: Scenario
    order: Schedule
    timed: Simulation
    stages: tuple[StageSeconds, ...]
    memory: tuple[RankMemory, ...]
    after_s: float
    capacity_bytes: int

    def __repr__(self) -> str:
        return (
            f"PipelineTimeline({self.order.name}, {counted(self.order.stages, 'rank')}: "
            f"{seconds(self.seconds)}, peak "
            f"{gb(max(self.peak_bytes))}, predicted)"
        )

    @property
    def seconds(self) -> float:
        """End of the step."""
        return self.timed.makespan + self.after_s

    @property
    def peak_bytes(self) -> tuple[int, ...]:
        """Most bytes on each rank."""
        return tuple(memory.peak_bytes for memory in self.memory)

    @cached_property
    def message_bytes(self) -> NDArray[np.int64]:
        """Bytes of the message that each action sends; 0 where its result stays on the rank or goes
        nowhere."""
        size, slots = message_bytes(self.scenario), range(len(self.order.placement))
        away = [near(self.scenario, slot) for slot in slots]
        stage = [self.order.model_stage(slot) for slot in slots]
        back = [at > 0 and not before for at, (before, _) in zip(stage, away, strict=True)]
        ahead = [at < self.order.depth - 1 and not after for at, (_, after) in zip(stage, away, strict=True)]
        kind, of = self.timed.kind, self.timed.stage
        sends = np.where(kind == F, np.array(ahead)[of], np.array(back)[of] & (kind != W))
        return np.where(sends, size, 0)

    def curve(self, rank: int) -> tuple[Floats, Floats]:
        """Memory of a rank over the step, as steps.

        Parameters
        ----------
        rank
            Pipeline rank.

        Returns
        -------
        tuple
            Times in order, and the bytes from each time on: while an action runs the peak inside it, between
            actions what is left. The optimizer step ends it.
        """
        held = self.memory[rank]
        start, end = self._clock(rank)
        own = columns_of(self.scenario, rank, self.order).segment != RUNS.index("G")
        own = own[: np.flatnonzero(own)[-1] + 1]
        action = np.cumsum(own) - 1
        start, end = np.where(own, start[action], end[action]), end[action]
        rest = len(held.peaks) - len(start)  # sums with copies or reductions, and the optimizer step
        edges = np.linspace(self.timed.makespan, self.seconds, rest + 1)
        starts, ends = np.concatenate((start, edges[:-1])), np.concatenate((end, edges[1:]))
        after = np.append(held.before[1:], held.before[0])
        times = np.stack((starts, ends), axis=1).ravel()
        return np.append(0.0, times), np.append(held.before[0], np.stack((held.peaks, after), axis=1).ravel())

    def _clock(self, rank: int) -> tuple[Floats, Floats]:
        """Start and end of a rank's actions; the second of an overlapped pair follows the first, each in its
        part of their time, as memory counts them."""
        timed = self.timed
        mine = slice(timed.bounds[rank], timed.bounds[rank + 1])
        start, end = timed.start[mine].copy(), timed.end[mine].copy()
        second = np.flatnonzero(timed.overlapped[mine])
        stage = timed.stage[mine]
        forward = np.array([self.stages[slot].forward for slot in stage[second - 1]])
        backward = np.array([self.stages[slot].backward for slot in stage[second]])
        share = forward / np.maximum(forward + backward, np.finfo(float).tiny)
        start[second] += share * (end[second] - start[second])
        end[second - 1] = start[second]
        return start, end


def pipeline_timeline(s: Scenario, rates: Rates | None = None) -> PipelineTimeline:
    """Predict a pipeline's step: each action on the clock, and each rank's memory along it.

    Parameters
    ----------
    s
        The scenario.
    rates
        Of the cluster; those of `predict.rates` if not given.

    Notes
    -----
    Prediction from data-sheet rates. Each stage's forward and backward are timed alone and laid along the
    schedule; an overlapped pair costs as much as its parts, since torch runs one after the other. Memory is
    exact to the operation for each action (segment summaries), and does not wait for messages under way.
    """
    refuse_unbuilt(s)
    made, chosen = pipeline(s), rates or rates_of(s)
    laid = lay_distinct(s, context(s), range(len(made.placement)))
    stages = stage_seconds(s, chosen, made, laid)
    return PipelineTimeline(
        scenario=s,
        order=made,
        timed=simulate_stages(s, chosen, made, stages),
        stages=stages,
        memory=tuple(rank_memories(s, made, laid)),
        after_s=after_last(made, stages),
        capacity_bytes=s.cluster.gpu.memory_bytes,
    )
