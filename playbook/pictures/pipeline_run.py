"""What real ranks did of a schedule, laid on the simulation's blocks.

Same order, units instead of seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from playbook.pictures.words import counted, difference, short
from playbook.spec import model
from playbook.units import thousands

if TYPE_CHECKING:
    from playbook.pictures.pipeline import TimedOrder

SHORTEST_S = 0.02
"""Shortest emulated action.

Below it the operating system's own delays show (2 to 4 ms add 34 %, 20 ms 0.9 %).
"""
PATIENCE_S = 1.5
"""A step that is over sooner is stretched, to at most twice the shortest action.

The delays then matter less.
"""

ActionTime = tuple[str, float, float]
"""Id of an action as in `m0/F/stage2`, its start and its duration in seconds on one clock."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MeasuredOrder:
    """Start and duration of each block of a simulation as ranks ran it; NaN for those that have not run."""

    start: NDArray[np.float64]
    duration: NDArray[np.float64]
    ranks: int
    source: str
    """One of `playbook.tables.SOURCES`, "emulated" where compute was replaced by sleeps."""

    @property
    def done(self) -> int:
        """Blocks that have run."""
        return int(np.count_nonzero(~np.isnan(self.start)))

    @property
    def now(self) -> float:
        """End of the last block so far, in units."""
        return float(np.nanmax(self.start + self.duration)) if self.done else 0.0

    @property
    def makespan(self) -> float | None:
        """End of the last block; None until all have run."""
        return self.now if self.done == self.start.size else None

    @property
    def idle_over_makespan(self) -> float | None:
        """Idle share of the step; None until all blocks have run."""
        if self.makespan is None:
            return None
        return 1 - float(self.duration.sum()) / self.ranks / self.makespan

    @property
    def words(self) -> str:
        """How far the run came, or that it is complete."""
        if self.makespan is not None:
            return f"{self.source} {short(self.makespan)}"
        return f"… {thousands(self.done)} of {thousands(self.start.size)}"


def unit_seconds(orders: Sequence[TimedOrder]) -> float:
    """Seconds that a unit of the picture lasts on real ranks, the same for all its schedules.

    The shortest action takes `SHORTEST_S`, or longer where the steps are over soon.

    Raises
    ------
    ValueError
        If a schedule splits backward in two, which real ranks do not run yet, or an action costs nothing.
    """
    shortest = min(min(_chunk_costs(one)) for one in orders)
    if shortest <= 0:
        raise ValueError("an action of no cost cannot be run; give I + W above 0")
    longest = max(one.timed.makespan for one in orders)
    stretch = min(2.0, max(1.0, PATIENCE_S * shortest / (SHORTEST_S * longest)))
    return stretch * SHORTEST_S / shortest


def _chunk_costs(one: TimedOrder) -> tuple[float, float]:
    """Units of a chunk's forward and of its backward."""
    timed = one.timed
    if not set(np.unique(timed.kind).tolist()) <= {0, 1}:
        raise ValueError(
            f"{one.title} splits backward in two; real ranks run schedules with a whole backward so far"
        )
    forward, backward = (float(timed.duration[timed.kind == kind][0]) for kind in (0, 1))
    return forward, backward


def emulation_levers(one: TimedOrder, unit_s: float) -> dict[str, Any]:
    """Levers of a run of the strategy `pp` whose actions last as long as the picture says.

    The model is as small as its stages allow, so that the real computation hides in the sleeps.
    """
    order = one.order
    forward, backward = _chunk_costs(one)
    small = replace(
        model("toy-15m"),
        name="toy-pipeline",
        layers=order.stages * order.chunks,
        hidden=64,
        heads=2,
        kv_heads=1,
        head_dim=32,
        ffn=96,
        vocabulary=256,
    )
    return {
        "model": small,
        "sequence": 8,
        "micro_batch": 1,
        "microbatches": order.microbatches,
        "schedule": order.name,
        "chunks": order.chunks,
        "unit_s": unit_s,
        "forward": forward,
        "backward": backward,
    }


def run_note(orders: Sequence[TimedOrder]) -> str:
    """What Run does and how long it takes, in words."""
    try:
        unit_s = unit_seconds(orders)
    except ValueError as refused:
        return str(refused)
    total = unit_s * sum(one.timed.makespan for one in orders)
    pace = f"{short(1000 * unit_s)} ms a unit, {short(total, 2)} s in all"
    return f"Real passes and messages of a small model, each stretched to its time in the picture: {pace}."


def measured_order(one: TimedOrder, times: Iterable[ActionTime], unit_s: float, source: str) -> MeasuredOrder:
    """Lay times of real actions on the blocks of a simulation.

    Parameters
    ----------
    one
        The simulated schedule.
    times
        Actions that have run, in any order; ids that the schedule has not are left out.
    unit_s
        Seconds that one unit of the picture took by plan.
    source
        Where the times come from.

    Notes
    -----
    Zero is the earliest start of all actions, so that the two clocks begin together.
    """
    found = {op: (start, duration) for op, start, duration in times}
    ids = one.timed.ids
    start, duration = np.full(len(ids), np.nan), np.full(len(ids), np.nan)
    zero = min((value[0] for value in found.values()), default=0.0)
    for place, op in enumerate(ids):
        if op in found:
            start[place] = (found[op][0] - zero) / unit_s
            duration[place] = found[op][1] / unit_s
    return MeasuredOrder(start=start, duration=duration, ranks=one.timed.ranks, source=source)


def measured_data(one: TimedOrder, run: MeasuredOrder) -> dict[str, Any]:
    """The same as plain data for a view: packed arrays, where the clock stands, words."""
    return {
        "start": run.start.astype("<f4").tobytes(),
        "duration": run.duration.astype("<f4").tobytes(),
        "now": run.now,
        "whole": run.makespan is not None,
        "words": run.words,
        "difference": difference(run.makespan, one.timed.makespan),
        "source": run.source,
        "left": counted(run.start.size - run.done, "action"),
    }
