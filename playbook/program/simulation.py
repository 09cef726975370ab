"""When each action of a pipeline runs: idle time, and what is alive when."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from playbook.program.chrome_trace import chrome_trace
from playbook.program.messages import Messages
from playbook.program.simulated_timeline import timeline_of
from playbook.program.waiting import Waiting, waiting_of
from playbook.schedules.action import KINDS
from playbook.schedules.packed import B, F, W
from playbook.units import number, percent

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(
    frozen=True, kw_only=True, eq=False, repr=False
)  # no slots: what is read off is made when asked for, and kept
class Simulation:
    """When each action runs; arrays go rank by rank, in each rank's own order."""

    start: NDArray[np.float64]
    """Start of each action, in the unit of the costs."""
    duration: NDArray[np.float64]
    """Cost of each action, same unit."""
    rank: NDArray[np.int64]
    stage: NDArray[np.int64]
    microbatch: NDArray[np.int64]
    kind: NDArray[np.int64]
    """Codes into `KINDS`."""
    overlapped: NDArray[np.bool_]
    """Whether an action is the second of an overlapped pair: it has the start and duration of the first, and
    the pair counts once as work."""
    recomputed: NDArray[np.float64]
    """Part of each duration, at its start, that makes activations again."""
    messages: Messages
    """Every result that passes from one rank to another."""
    bounds: tuple[int, ...]
    """Actions of rank r are `bounds[r]:bounds[r + 1]`."""

    def __repr__(self) -> str:
        return (
            f"Simulation(makespan {number(self.makespan)}, idle {percent(self.idle_over_makespan)} of it "
            f"({percent(self.idle_over_ideal)} of ideal), most alive {' '.join(map(str, self.peak_live))})"
        )

    @property
    def ranks(self) -> int:
        """Pipeline ranks."""
        return len(self.bounds) - 1

    @property
    def end(self) -> NDArray[np.float64]:
        """End of each action."""
        return self.start + self.duration

    @property
    def makespan(self) -> float:
        """End of the last action of all ranks."""
        return float(self.end.max())

    @property
    def work(self) -> tuple[float, ...]:
        """Sum of the costs of each rank's actions."""
        busy = np.where(self.overlapped, 0.0, self.duration)
        return tuple(float(busy[self._of(rank)].sum()) for rank in range(self.ranks))

    @property
    def ideal(self) -> float:
        """Mean work of a rank: the time with no idle slot."""
        return float(self.duration[~self.overlapped].sum()) / self.ranks

    @property
    def idle(self) -> float:
        """Makespan minus the mean work of a rank."""
        return self.makespan - self.ideal

    @property
    def idle_over_makespan(self) -> float:
        """Idle share of the step, as GPipe and Zero Bubble count it: (p − 1)/(m + p − 1)."""
        return self.idle / self.makespan if self.makespan else 0.0

    @property
    def idle_over_ideal(self) -> float:
        """Idle time over useful time, as Megatron counts it: (p − 1)/m."""
        return self.idle / self.ideal if self.ideal else 0.0

    @property
    def span_idle(self) -> float:
        """Largest idle time between a rank's first start and last end: the bubble of Zero Bubble papers."""
        end = self.end
        spans = [float(end[self._of(r)].max() - self.start[self._of(r)].min()) for r in range(self.ranks)]
        return max(span - work for span, work in zip(spans, self.work, strict=True))

    @property
    def peak_live(self) -> tuple[int, ...]:
        """Per rank, the most chunks alive at once: from the start of F to the end of W, or of a fused B."""
        change = (self.kind == F).astype(np.int64) - ((self.kind == B) | (self.kind == W))
        return tuple(int(np.cumsum(change[self._of(rank)]).max()) for rank in range(self.ranks))

    def live_curve(self, rank: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Chunks alive on a rank over time.

        Returns
        -------
        tuple
            Times at which the count changes, in order, and the count from each time on.
        """
        kind, start, end = self.kind[self._of(rank)], self.start[self._of(rank)], self.end[self._of(rank)]
        frees = (kind == B) | (kind == W)
        times = np.where(frees, end, start)[frees | (kind == F)]
        change = np.where(frees, -1, 1)[frees | (kind == F)]
        return times, np.cumsum(change)

    @property
    def ids(self) -> list[str]:
        """Id of each action, as in `m0/F/stage2`."""
        rows = zip(self.microbatch.tolist(), self.kind.tolist(), self.stage.tolist(), strict=True)
        return [f"m{microbatch}/{KINDS[kind]}/stage{stage}" for microbatch, kind, stage in rows]

    @property
    def labels(self) -> list[str]:
        """Each action as text, as in 2F0."""
        rows = zip(self.stage.tolist(), self.kind.tolist(), self.microbatch.tolist(), strict=True)
        return [f"{stage}{KINDS[kind]}{microbatch}" for stage, kind, microbatch in rows]

    @property
    def table(self) -> DataFrame:
        """The timeline table, with the costs read as seconds and source "simulated"."""
        return timeline_of(self)

    def to_csv(self, path: str | Path | None = None) -> str:
        """Write the timeline table as CSV; to `path` too if given."""
        text = str(self.table.to_csv(index=False))
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def to_chrome_trace(self, path: str | Path | None = None) -> str:
        """Write a trace for Perfetto as JSON, with the costs read as seconds; to `path` too if given."""
        text = json.dumps(chrome_trace(self.table))
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    @property
    def cause(self) -> NDArray[np.int64]:
        """Row of the action that each action waited for last; −1 if it started when its rank was free.

        Where a sender is kept by its own message it is the sender, or what kept the message's receiver. The
        second of an overlapped pair has −1: the pair's wait is the first's.
        """
        return self._waiting.cause

    @property
    def waited(self) -> NDArray[np.float64]:
        """Idle time before each action, from the end of the one before it on its rank, or from the start."""
        return self._waiting.waited

    @property
    def in_flight(self) -> NDArray[np.float64]:
        """Part of each action's wait during which the message waited for was under way."""
        return self._waiting.in_flight

    @property
    def exposed_communication(self) -> tuple[float, ...]:
        """Per rank, the idle time during which a message waited for was under way."""
        return tuple(float(self.in_flight[self._of(rank)].sum()) for rank in range(self.ranks))

    def wait_words(self, row: int) -> str:
        """What an action waited for, as in "waits for 0B3 of rank 1; 0.3 of it the message's way".

        Empty if it did not wait. The second of an overlapped pair tells of the pair.
        """
        row -= int(self.overlapped[row])
        at, waited, flight = (
            int(self._waiting.message[row]),
            float(self.waited[row]),
            float(self.in_flight[row]),
        )
        if at < 0:
            return ""
        sender, receiver = int(self.messages.sender[at]), int(self.messages.receiver[at])
        name = f"{self.stage[sender]}{KINDS[self.kind[sender]]}{self.microbatch[sender]}"
        words = f"waits for {name} of rank {self.rank[sender]}"
        if self.rank[sender] == self.rank[row]:
            words = f"waits until {name} has reached rank {self.rank[receiver]}"
        if flight <= 0:
            return words
        part = "all" if flight >= waited * (1 - 1e-9) else f"{flight:.3g}"
        return f"{words}; {part} of it the message's way"

    @cached_property
    def _waiting(self) -> Waiting:
        return waiting_of(self.start, self.duration, self.rank, self.overlapped, self.messages)

    def _of(self, rank: int) -> slice:
        if not 0 <= rank < self.ranks:
            raise ValueError(f"rank {rank} of {self.ranks}; use 0 to {self.ranks - 1}")
        return slice(self.bounds[rank], self.bounds[rank + 1])
