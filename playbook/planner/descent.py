"""Improve a cut of layers by moving one at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence


def descend(start: Sequence[int], score: Callable[[tuple[int, ...]], tuple[float, ...]]) -> tuple[int, ...]:
    """Move one layer from a stage to another as long as that improves the score; not always the best cut."""
    best, value = tuple(start), score(tuple(start))
    while True:
        tried = ((score(cut), cut) for cut in _moved(best))
        found = min(tried, default=(value, best))
        if found[0] >= value:
            return best
        value, best = found


def _moved(cut: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    for giver, count in enumerate(cut):
        if count == 1:
            continue
        for taker in range(len(cut)):
            if taker != giver:
                yield tuple(n - (s == giver) + (s == taker) for s, n in enumerate(cut))
