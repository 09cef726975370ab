"""Event engine: rows on streams that wait for other rows.

It knows nothing of pipelines or kernels. A stream runs its rows one after the other in their given order; a
row starts when its stream is free and every row that it waits for has ended. Ranks of a pipeline are streams,
and so are the compute and communication queues of one rank.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Waits = tuple[ArrayLike, ArrayLike]
"""(waiter, awaited), equally long: row `waiter[k]` starts no earlier than the end of row `awaited[k]`."""


def run_streams(
    durations: ArrayLike,
    stream: ArrayLike,
    waits: Waits = ((), ()),
    *,
    delays: ArrayLike = 0.0,
    holds: ArrayLike = 0.0,
    describe: Callable[[int], str] = "row {}".format,
    describe_stream: Callable[[int], str] = "stream {}".format,
) -> NDArray[np.float64]:
    """Start of every row.

    Parameters
    ----------
    durations
        Time of each row, in any one unit, not negative.
    stream
        Stream of each row, from 0; rows of one stream run in the order given here.
    waits
        Who waits for whom, on the same or another stream; before or after it in the arrays.
    delays
        Time between an awaited row's end and its waiter's earliest start: one for each wait, or one for all.
    holds
        Time that a row keeps its stream occupied after its end, without being work: one each, or one for all.
    describe, describe_stream
        Names of a row and a stream in the text of an error.

    Returns
    -------
    NDArray[np.float64]
        Start times; the first is 0.

    Raises
    ------
    ValueError
        If rows wait for each other in a cycle; the text names it.

    Notes
    -----
    Linear in rows and waits: a blocked stream sleeps until the row it waits for ends.

    Examples
    --------
    Two products on stream 0, a collective on stream 1 that waits for the first, a row that waits for both.

    >>> run_streams([2, 2, 3, 1], [0, 0, 1, 0], ([2, 3], [0, 2])).tolist()
    [0.0, 2.0, 2.0, 5.0]
    """
    length = np.asarray(durations, dtype=np.float64)
    lane = np.asarray(stream, dtype=np.int64)
    if length.shape != lane.shape or length.ndim != 1:
        raise ValueError(f"{length.size} durations but {lane.size} streams; give one of each for every row")
    if length.size and (not np.isfinite(length).all() or length.min() < 0):
        raise ValueError("a duration is negative or not finite; use 0 or more")
    if lane.size and lane.min() < 0:
        raise ValueError(f"stream {lane.min()} is negative; number the streams from 0")
    waiting = _by_waiter(waits, delays, length.size)
    rows = np.argsort(lane, kind="stable")
    lanes = int(lane.max()) + 1 if lane.size else 0
    bounds = np.concatenate(([0], np.cumsum(np.bincount(lane, minlength=lanes)))).tolist()
    hold = np.broadcast_to(np.asarray(holds, dtype=np.float64), length.shape).tolist()
    start, heads = _sweep(length.tolist(), hold, rows.tolist(), bounds, waiting)
    if any(head < bounds[s + 1] for s, head in enumerate(heads)):
        blocked = {s: rows[head] for s, head in enumerate(heads) if head < bounds[s + 1]}
        raise ValueError(_name_cycle(start, blocked, lane, waiting, describe, describe_stream))
    return np.asarray(start, dtype=np.float64)


class _Waiting(NamedTuple):
    """What each row waits for: two waits in flat lists, since few rows have more, and further ones apart."""

    awaited: list[int]
    """First row that each row waits for, −1 for none."""
    delay: list[float]
    second: list[int]
    """Second row that each row waits for, −1 for none."""
    second_delay: list[float]
    more: dict[int, list[tuple[int, float]]]
    """Row → (awaited, delay) of its further waits."""

    def of(self, row: int) -> list[int]:
        """All rows that a row waits for."""
        return [self.awaited[row], self.second[row], *(awaited for awaited, _ in self.more.get(row, ()))]


def _by_waiter(waits: Waits, delays: ArrayLike, rows: int) -> _Waiting:
    """Waits by the row that waits."""
    waiter, awaited = (np.asarray(side, dtype=np.int64) for side in waits)
    if waiter.shape != awaited.shape:
        raise ValueError(f"{waiter.size} waiters but {awaited.size} awaited rows; give pairs")
    if waiter.size and (min(waiter.min(), awaited.min()) < 0 or max(waiter.max(), awaited.max()) >= rows):
        raise ValueError(f"a wait names a row outside 0..{rows - 1}")
    delay = np.broadcast_to(np.asarray(delays, dtype=np.float64), waiter.shape)
    first, left = _first_of_each(waiter, np.arange(waiter.size), rows)
    second, left = _first_of_each(waiter, left, rows)
    awaited_or, delay_or = np.append(awaited, -1), np.append(delay, 0.0)  # place −1: no wait
    more: dict[int, list[tuple[int, float]]] = {}
    for k in left.tolist():
        more.setdefault(int(waiter[k]), []).append((int(awaited[k]), float(delay[k])))
    return _Waiting(
        awaited=awaited_or[first].tolist(),
        delay=delay_or[first].tolist(),
        second=awaited_or[second].tolist(),
        second_delay=delay_or[second].tolist(),
        more=more,
    )


def _first_of_each(
    waiter: NDArray[np.int64], waits: NDArray[np.int64], rows: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Of some waits the first of every row, −1 for none; and the waits that are left."""
    first = np.full(rows, -1, dtype=np.int64)
    first[waiter[waits][::-1]] = waits[::-1]  # of equal places the last assignment stays
    return first, waits[first[waiter[waits]] != waits]


def _sweep(
    length: list[float],
    hold: list[float],
    rows: list[int],
    bounds: list[int],
    waiting: _Waiting,
) -> tuple[list[float], list[int]]:
    """Run every stream as far as it goes, again whenever the row it waits for has ended.

    A plain loop over flat lists: that is the fastest form in CPython, and arrays cannot help where each start
    needs the one before. A start below zero means that the row has not run.
    """
    awaited, delay, second = waiting.awaited, waiting.delay, waiting.second
    start = [-1.0] * len(length)
    end = [-1.0] * len(length)
    heads = bounds[:-1]
    free = [0.0] * len(heads)
    sleepers: dict[int, list[int]] = {}
    awake = list(range(len(heads) - 1, -1, -1))
    while awake:
        stream = awake.pop()
        now = free[stream]
        place, last = heads[stream], bounds[stream + 1]
        while place < last:
            row = rows[place]
            need = awaited[row]
            if need >= 0:
                ready = end[need]
                if ready < 0.0:
                    sleepers.setdefault(need, []).append(stream)
                    break
                ready += delay[row]
                if ready > now:
                    now = ready
                if second[row] >= 0:
                    ready, need = _others(row, waiting, end)
                    if need >= 0:
                        sleepers.setdefault(need, []).append(stream)
                        break
                    if ready > now:
                        now = ready
            start[row] = now
            now += length[row]
            end[row] = now
            now += hold[row]
            place += 1
            if row in sleepers:
                awake += sleepers.pop(row)
        heads[stream] = place
        free[stream] = now
    return start, heads


def _others(row: int, waiting: _Waiting, end: list[float]) -> tuple[float, int]:
    """When the waits of a row beyond its first are over, and −1; or else a row that has not run."""
    need = waiting.second[row]
    if end[need] < 0.0:
        return 0.0, need
    latest = end[need] + waiting.second_delay[row]
    for need, delay in waiting.more.get(row, ()):
        if end[need] < 0.0:
            return 0.0, need
        latest = max(latest, end[need] + delay)
    return latest, -1


def _name_cycle(
    start: Sequence[float],
    blocked: dict[int, int],
    lane: NDArray[np.int64],
    waiting: _Waiting,
    describe: Callable[[int], str],
    describe_stream: Callable[[int], str],
) -> str:
    """Follow who waits for whom from one blocked stream until a stream comes up again."""

    def wanted(stream: int) -> int:
        return next(row for row in waiting.of(blocked[stream]) if row >= 0 and start[row] < 0.0)

    stream, trail = min(blocked), []
    while stream not in trail:
        trail.append(stream)
        stream = int(lane[wanted(stream)])
    cycle = trail[trail.index(stream) :]
    links = [
        f"{describe_stream(s)} stops at {describe(blocked[s])}, "
        f"which waits for {describe(wanted(s))} on {describe_stream(int(lane[wanted(s)]))}"
        for s in cycle
    ]
    return f"deadlock: {'; '.join(links)}; change the order so that one of them can run first"
