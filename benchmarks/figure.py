"""One line of the performance table."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """Seconds that something took, several times in one run, beside its budget and its peer."""

    what: str
    seconds: tuple[float, ...]
    budget_s: float | None = None
    peer: str | None = None
    """What the peer is, in words."""
    peer_seconds: tuple[float, ...] = ()
    """The peer in the same run, doing the same."""
    wanted_ratio: float | None = None
    """How many times as fast as the peer it is meant to be."""

    @property
    def fastest(self) -> float:
        """Least of the samples: what the code needs when nothing else takes the core."""
        return min(self.seconds)

    @property
    def median(self) -> float:
        """Median of the samples."""
        return median(self.seconds)

    @property
    def ratio(self) -> float | None:
        """Median of the peer over our median."""
        return median(self.peer_seconds) / self.median if self.peer_seconds else None

    @property
    def met(self) -> bool:
        """Whether the median is within budget and the ratio as wanted."""
        within = self.budget_s is None or self.median <= self.budget_s
        faster = self.wanted_ratio is None or (self.ratio is not None and self.ratio >= self.wanted_ratio)
        return within and faster


def sample(
    work: Callable[[], Any],
    times: int,
    warmup: int = 1,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[float, ...]:
    """Call `work` some times unmeasured, then `times` times measured by a clock.

    Returns
    -------
    tuple
        Seconds of each measured call.
    """
    for _ in range(warmup):
        work()
    taken = []
    for _ in range(times):
        begin = clock()
        work()
        taken.append(clock() - begin)
    return tuple(taken)


def as_markdown(figures: Sequence[Figure], machine: str) -> str:
    """Render the table, with the machine below it."""
    head = "| what | budget | fastest | median | peer, same run | times as fast | met |\n"
    rows = "".join(_row(figure) for figure in figures)
    return f"{head}| --- | --- | --- | --- | --- | --- | --- |\n{rows}\n{machine}\n"


def _row(figure: Figure) -> str:
    budget = "" if figure.budget_s is None else f"≤ {_text(figure.budget_s)}"
    peer = f"{figure.peer}: {_text(median(figure.peer_seconds))}" if figure.peer_seconds else ""
    ratio = "" if figure.ratio is None else f"{figure.ratio:,.0f} ×"
    if figure.wanted_ratio is not None:
        ratio += f" (≥ {figure.wanted_ratio:g} ×)"
    cells = (figure.what, budget, _text(figure.fastest), _text(figure.median), peer, ratio)
    judged = figure.budget_s is not None or figure.wanted_ratio is not None
    return f"| {' | '.join(cells)} | {('yes' if figure.met else 'no') if judged else ''} |\n"


def _text(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"
