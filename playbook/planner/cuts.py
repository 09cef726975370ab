"""Cut a line of layers into contiguous stages: the least of the largest load, and every other limit kept.

One stage a rank: dynamic programming. Two a rank (a loop, a V, or two directions): whether a limit can be met
is decided exactly, and the least limit found by halving. Every stage gets at least one layer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

CLOSE = 1e-12
HALVED = 1e-6
"""Halving stops when the limit is known this closely: the cut found is then within that of the least."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Demand:
    """What layers add up to on a rank, and the most it may be."""

    first: Floats
    """Sum over the layers before each border, as they count in the rank's first stage."""
    second: Floats
    """The same in its second stage; zeros where it has none."""
    fixed: float
    """What the rank has without any layer: the model's ends."""
    limit: float

    def used(self, begin: int, end: int, other_begin: int = 0, other_end: int = 0) -> float:
        """What a rank has with layers [begin, end) in its first stage and others in its second."""
        first = self.first[end] - self.first[begin]
        return float(self.fixed + first + self.second[other_end] - self.second[other_begin])

    def fits(self, begin: int, end: int, other_begin: int = 0, other_end: int = 0) -> bool:
        """Tell whether that is within the limit."""
        used = self.used(begin, end, other_begin, other_end)
        return used <= self.limit + CLOSE * max(1.0, abs(self.limit))


Demands = Sequence[Sequence[Demand]]
"""What each rank must keep."""


def cut_line(seconds: Sequence[Demand], others: Demands, layers: int) -> tuple[int, ...] | None:
    """Layers of each stage, one a rank, that minimise the largest seconds; of those, the most even ones.

    None if the other demands leave no cut.
    """
    allowed = [_segments(demands, layers) for demands in others]
    cost = [np.where(ok, _loads(one, layers), np.inf) for one, ok in zip(seconds, allowed, strict=True)]
    least = _best_path(cost, np.maximum)[0]
    if not np.isfinite(least):
        return None
    most = least * (1 + CLOSE) + CLOSE
    squares = [np.where(one <= most, one**2, np.inf) for one in cost]
    borders = _best_path(squares, np.add)[1]
    return tuple(int(b - a) for a, b in zip(borders, borders[1:], strict=False))


def _loads(one: Demand, layers: int) -> Floats:
    """Load of a stage of layers [a, b), inf where it has none."""
    loads = one.fixed + one.first[None, :] - one.first[:, None]
    return np.where(np.triu(np.ones((layers + 1,) * 2, dtype=bool), 1), loads, np.inf)


def _segments(demands: Sequence[Demand], layers: int) -> NDArray[np.bool_]:
    """Which layers [a, b) keep every demand of a rank."""
    slack = [_loads(one, layers) <= one.limit + CLOSE * max(1.0, abs(one.limit)) for one in demands]
    return np.logical_and.reduce(slack) if slack else np.ones((layers + 1,) * 2, dtype=bool)


def _best_path(cost: Sequence[Floats], join: Callable[[Floats, Floats], Floats]) -> tuple[float, list[int]]:
    """Borders 0 … L of the cheapest path through one segment a stage, and what it costs."""
    best, came = np.full(cost[0].shape[0], np.inf), []
    best[0] = 0.0
    for one in cost:
        ways = join(best[:, None], one)
        came.append(ways.argmin(axis=0))
        best = ways.min(axis=0)
    borders = [len(best) - 1]
    for before in reversed(came):
        borders.append(int(before[borders[-1]]))
    return float(best[-1]), borders[::-1]


def cut_pairs(
    demands_at: Callable[[float], Demands],
    value: Callable[[tuple[int, ...]], float],
    start: tuple[int, ...] | None,
    low: float,
    high: float,
    layers: int,
    nested: bool,
) -> tuple[int, ...] | None:
    """Layers of each stage, two a rank, with the least limit that any cut meets.

    Parameters
    ----------
    demands_at
        Limit → what each rank must keep.
    value
        Cut → the limit that it just meets.
    start
        A cut that keeps every other demand, if one is known: usually nothing is below it, which takes one
        decision to prove.
    low, high
        Limits below which no cut is, and at which there is one if there is any.
    layers
        Layers of the model.
    nested
        The second stages lie in reverse (V, two directions) and not in the same order (loop).

    Returns
    -------
    tuple or None
        Layers by stage in order of depth; None if `high` cannot be met either.
    """
    best = _meet(demands_at(high), layers, nested) if start is None else start
    if best is None:
        return None
    high = value(best)
    middle = high * (1 - HALVED)
    while low < middle < high:
        better = _meet(demands_at(middle), layers, nested)
        if better is None:
            low = middle
        else:
            best, high = better, value(better)
        middle = min((low + high) / 2, high * (1 - HALVED))
    return best


def _meet(demands: Demands, layers: int, nested: bool) -> tuple[int, ...] | None:
    """Find a cut that meets every demand, or None if there is none."""
    reach = _frontiers(demands, layers, nested)
    for row, first in _ends(reach[-1], layers, nested):
        found = _Walk(demands, [one[row] for one in reach], layers, nested).back(first)
        if found is not None:
            return found
    return None


def _frontiers(demands: Demands, layers: int, nested: bool) -> list[Ints]:
    """After each rank, the most layers its second stages can have taken, by start and by layers of the first.

    Empty stages are allowed here, so that more is never worse: what this rules out is impossible. Rows are
    the layer where second stages start (a loop), or one row (nested, counted from the end); −1 is impossible.
    """
    starts = np.zeros(1, dtype=np.int64) if nested else np.arange(1, layers)
    at = np.full((starts.size, layers + 1), -1, dtype=np.int64)
    at[:, 0] = 0
    found = [at]
    for one in demands:
        after = np.full_like(at, -1)
        for width in range(layers + 1):
            moved = _reach(one, at[:, : layers + 1 - width], starts, width, layers, nested)
            if (moved < 0).all():
                break
            np.maximum(after[:, width:], moved, out=after[:, width:])
        at = after
        found.append(at)
    return found


def _reach(demands: Sequence[Demand], at: Ints, starts: Ints, width: int, layers: int, nested: bool) -> Ints:
    """How far the second stage gets if the first takes `width` layers, from each place."""
    moved = np.broadcast_to(layers - starts[:, None], at.shape).copy()
    begin = np.arange(at.shape[1])
    for one in demands:
        line = one.second[-1] - one.second[::-1] if nested else one.second
        room = one.limit + CLOSE * max(1.0, abs(one.limit)) - one.fixed
        slack = room - (one.first[begin + width] - one.first[begin])
        place = np.clip(starts[:, None] + at, 0, layers)
        to = np.searchsorted(line, line[place] + slack[None, :], side="right") - 1 - starts[:, None]
        moved = np.minimum(moved, np.where(slack[None, :] >= 0, to, -1))
    return np.where((at < 0) | (moved < at), -1, moved)


def _ends(last: Ints, layers: int, nested: bool) -> Iterator[tuple[int, int]]:
    """(row, layers of the first stages) where both together can cover the model; the middle comes first."""
    for first in sorted(range(1, layers), key=lambda count: abs(2 * count - layers)):
        row = 0 if nested else first - 1
        if last[row, first] >= layers - first:
            yield row, first


@dataclass(slots=True, eq=False)
class _Walk:
    """Search back from the end for stages that each have a layer; what failed is not tried again."""

    demands: Demands
    reach: list[Ints]
    layers: int
    nested: bool
    start: int = field(init=False)

    def back(self, first: int) -> tuple[int, ...] | None:
        """Layers of every stage if the first ones take so many together."""
        self.start = first
        trail = self._trail(len(self.demands), first, self.layers - first, set())
        if trail is None:
            return None
        widths = [(b[0] - a[0], b[1] - a[1]) for a, b in zip(trail, trail[1:], strict=False)]
        second = [width for _, width in widths]
        return (*(width for width, _ in widths), *(second[::-1] if self.nested else second))

    def _trail(
        self, rank: int, first: int, second: int, failed: set[tuple[int, int, int]]
    ) -> list[tuple[int, int]] | None:
        """Borders up to a rank that end at these, or None."""
        if rank == 0:
            return [(0, 0)] if first == second == 0 else None
        if (rank, first, second) in failed:
            return None
        for before in range(first - 1, rank - 2, -1):
            if not self._fits(rank - 1, before, first, second - 1, second):
                break
            for other in range(second - 1, rank - 2, -1):
                if not self._fits(rank - 1, before, first, other, second):
                    break
                if self.reach[rank - 1][before] < other:
                    continue
                trail = self._trail(rank - 1, before, other, failed)
                if trail is not None:
                    return [*trail, (first, second)]
        failed.add((rank, first, second))
        return None

    def _fits(self, rank: int, begin: int, end: int, other_begin: int, other_end: int) -> bool:
        if self.nested:
            other_begin, other_end = self.layers - other_end, self.layers - other_begin
        else:
            other_begin, other_end = self.start + other_begin, self.start + other_end
        return all(one.fits(begin, end, other_begin, other_end) for one in self.demands[rank])
