"""What real ranks did of a schedule, laid on the simulation's blocks.

Same order, the picture's clock instead of seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from playbook.pictures.words import difference, short
from playbook.program.simulation import Simulation
from playbook.schedules.action import KINDS
from playbook.units import counted, thousands

if TYPE_CHECKING:
    from playbook.pictures.pipeline_orders import TimedOrder

Floats = NDArray[np.float64]

ActionTime = tuple[str, float, float]
"""Id of an action as in `m0/F/stage2`, its start and its duration in seconds on one clock."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MeasuredOrder:
    """Start and duration of each block of a simulation as ranks ran it; NaN for those that have not run."""

    start: Floats
    duration: Floats
    waited: Floats
    """Wait for a message before each block, 0 where the rank did not wait."""
    second: NDArray[np.bool_]
    """Second of an overlapped pair: its time is that of the first, and counts once."""
    ranks: int
    source: str
    """One of `playbook.tables.SOURCES`, "emulated" where compute was replaced by sleeps."""
    words_of: Callable[[float], str] = short
    """How a duration reads."""

    @property
    def done(self) -> int:
        """Blocks that have run."""
        return int(np.count_nonzero(~np.isnan(self.start)))

    @property
    def now(self) -> float:
        """End of the last block so far, on the picture's clock."""
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
        return 1 - float(self.duration[~self.second].sum()) / self.ranks / self.makespan

    @property
    def words(self) -> str:
        """How far the run came, or that it is complete."""
        if self.makespan is not None:
            return f"{self.source} {self.words_of(self.makespan)}"
        return f"… {thousands(self.done)} of {thousands(self.start.size)}"

    def stretched(self, factor: float) -> MeasuredOrder:
        """The same on a clock whose unit is so many times shorter."""
        return replace(
            self, start=self.start * factor, duration=self.duration * factor, waited=self.waited * factor
        )

    def kinds(self, timed: Simulation) -> list[tuple[str, int, float, float]]:
        """Kind, number, predicted and measured mean duration of the blocks that ran; pairs are "F&B"."""
        pair = timed.overlapped | np.append(timed.overlapped[1:], False)
        ran = ~np.isnan(self.start) & ~timed.overlapped
        names = [(kind, (timed.kind == code) & ~pair) for code, kind in enumerate(KINDS)]
        found = []
        for name, mine in (*names, ("F&B", pair)):
            rows = ran & mine
            if rows.any():
                count = int(rows.sum())
                found.append(
                    (name, count, float(timed.duration[rows].mean()), float(self.duration[rows].mean()))
                )
        return found


def measured_order(
    one: TimedOrder,
    times: Iterable[ActionTime],
    unit_s: float,
    source: str,
    waits: Mapping[str, float] | None = None,
) -> MeasuredOrder:
    """Lay times of real actions on the blocks of a simulation.

    Parameters
    ----------
    one
        The simulated schedule.
    times
        Actions that have run, in any order; ids that the schedule has not are left out.
    unit_s
        Seconds that one unit of the picture's clock took by plan.
    source
        Where the times come from.
    waits
        By action, the seconds that its rank waited for its message.

    Notes
    -----
    Zero is the earliest start of all actions, so that the two clocks begin together.
    """
    found = {op: (start, duration) for op, start, duration in times}
    ids, waits = one.timed.ids, waits or {}
    start, duration, waited = (np.full(len(ids), fill) for fill in (np.nan, np.nan, 0.0))
    zero = min((value[0] for value in found.values()), default=0.0)
    for place, op in enumerate(ids):
        if op in found:
            start[place] = (found[op][0] - zero) / unit_s
            duration[place] = found[op][1] / unit_s
            waited[place] = waits.get(op, 0.0) / unit_s
    _join_pairs(one.timed, start, duration)
    return MeasuredOrder(
        start=start,
        duration=duration,
        waited=waited,
        second=one.timed.overlapped,
        ranks=one.timed.ranks,
        source=source,
        words_of=one.bare,
    )


def _join_pairs(timed: Simulation, start: Floats, duration: Floats) -> None:
    """Give both halves of a pair the time from the start of the first to the end of the last."""
    seconds = np.flatnonzero(timed.overlapped)
    firsts = seconds - 1
    begin = np.fmin(start[firsts], start[seconds])
    end = np.maximum(start[firsts] + duration[firsts], start[seconds] + duration[seconds])
    for rows in (firsts, seconds):
        start[rows], duration[rows] = np.where(np.isnan(end), np.nan, begin), end - begin


def measured_data(one: TimedOrder, run: MeasuredOrder, scale: float = 1.0) -> dict[str, Any]:
    """The same as plain data for a view: packed arrays, where the clock stands, words.

    `scale` is the view's unit of time, in that of the picture.
    """
    return {
        "start": (run.start / scale).astype("<f4").tobytes(),
        "duration": (run.duration / scale).astype("<f4").tobytes(),
        "waited": (run.waited / scale).astype("<f4").tobytes() if run.waited.any() else b"",
        "now": run.now / scale,
        "whole": run.makespan is not None,
        "words": run.words,
        "difference": difference(run.makespan, one.timed.makespan),
        "kinds": [[kind, difference(found, predicted)] for kind, _, predicted, found in run.kinds(one.timed)]
        if run.makespan is not None
        else [],
        "source": run.source,
        "left": counted(run.start.size - run.done, "action"),
    }
