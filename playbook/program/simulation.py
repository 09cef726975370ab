"""When each action of a pipeline runs: idle time, and what is alive when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from playbook.schedules.action import KINDS
from playbook.schedules.packed import B, F, W
from playbook.tables import table

if TYPE_CHECKING:
    from pandas import DataFrame

KIND_WORDS = ("forward", "backward", "backward_input", "backward_weight")
"""`KINDS` in the words of the timeline table."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
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
    bounds: tuple[int, ...]
    """Actions of rank r are `bounds[r]:bounds[r + 1]`."""

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
    def table(self) -> DataFrame:
        """The timeline table, with the costs read as seconds and source "simulated"."""
        kinds = self.kind.tolist()
        pairs = zip(self.stage.tolist(), kinds, self.microbatch.tolist(), strict=True)
        return table(
            "timeline",
            {
                "scenario": "",
                "rank": self.rank,
                "op": self.ids,
                "lane": "compute",
                "kind": [KIND_WORDS[kind] for kind in kinds],
                "label": [f"{stage}{KINDS[kind]}{microbatch}" for stage, kind, microbatch in pairs],
                "microbatch": self.microbatch,
                "start_s": self.start,
                "duration_s": self.duration,
                "low_s": self.duration,
                "high_s": self.duration,
                "bytes": 0,
                "source": "simulated",
            },
        )

    def _of(self, rank: int) -> slice:
        if not 0 <= rank < self.ranks:
            raise ValueError(f"rank {rank} of {self.ranks}; use 0 to {self.ranks - 1}")
        return slice(self.bounds[rank], self.bounds[rank + 1])
