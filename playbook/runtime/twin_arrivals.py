"""When messages of a pipeline reach the twin's rank: the other ranks are simulated, at this one's own speed.

Each stage's predicted seconds, scaled by what this rank's compute took over its prediction, are laid along
the schedule; a message that the rank waits for arrives when the simulation says, from the step's start.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np
from torch import Tensor

from playbook.predict.orders import pipeline
from playbook.predict.rates import rates_of
from playbook.predict.stage_seconds import simulate_stages, stage_seconds
from playbook.predict.stages import context, lay_distinct
from playbook.program.ids import parse
from playbook.program.simulation import Simulation
from playbook.runtime.part import Watch
from playbook.schedules.packed import F
from playbook.spec import Scenario

Letter = tuple[int, int, bool]
"""Whose message: micro-batch and stage of the action that needs it, and whether it is a forward."""


class Arrivals(Watch):
    """Says how long a receive that is about to be posted lasts.

    Parameters
    ----------
    clock
        Seconds, as the processor counts them.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.due_s: Mapping[Letter, float] = {}
        self._clock, self._began = clock, 0.0
        self._rooms: dict[int, float] = {}

    def begin(self) -> None:
        """Say that a step begins."""
        self._began = self._clock()
        self._rooms.clear()

    @contextmanager
    def during(self, kind: str, action: str, message: Tensor | None = None) -> Iterator[None]:
        """Note for whom the room of a receive is."""
        if kind == "receive" and message is not None:
            made = parse(action)
            letter = made.microbatch, int(made.owner.removeprefix("stage")), made.phase == "F"
            self._rooms[message.data_ptr()] = self.due_s.get(letter, 0.0)
        yield

    def wait_s(self, room: Tensor) -> float:
        """Seconds from now to the arrival of the message that fills a room; 0 if it is there already."""
        due = self._rooms.pop(room.data_ptr(), 0.0)
        return max(0.0, self._began + due - self._clock())


def arrivals_of(scenario: Scenario, rank: int, compute_s: float) -> dict[Letter, float]:
    """Seconds from the step's start to the arrival of each message that a rank receives.

    Parameters
    ----------
    scenario
        As it runs, with a pipeline.
    rank
        Global rank.
    compute_s
        Seconds of its step when no message is waited for.
    """
    rates, made = rates_of(scenario), pipeline(scenario)
    slots = range(len(made.placement))
    stages = stage_seconds(scenario, rates, made, lay_distinct(scenario, context(scenario), slots))
    timed = simulate_stages(scenario, rates, made, stages)
    own = scenario.layout.coordinates(rank)["pp"]
    after = sum(stage.after for stage, owner in zip(stages, made.placement, strict=True) if owner == own)
    return letters_of(timed, own, compute_s / (timed.work[own] + after))


def letters_of(timed: Simulation, rank: int, scale: float) -> dict[Letter, float]:
    """Arrival of each message at a pipeline rank, times a factor."""
    receivers = timed.messages.receiver
    mine = np.flatnonzero(timed.rank[receivers] == rank)
    return {
        (int(timed.microbatch[row]), int(timed.stage[row]), bool(timed.kind[row] == F)): scale * float(at)
        for row, at in zip(receivers[mine], timed.messages.arrival[mine], strict=True)
    }
