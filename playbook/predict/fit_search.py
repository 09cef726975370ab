"""The largest or smallest whole number whose memory fits, found exactly with few evaluations."""

from collections.abc import Callable
from dataclasses import dataclass

MOST = 2**31
"""Number of choices looked at where nothing bounds them."""

GROWTH = 8
"""Factor between two choices while the bound is sought."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """One value that was looked at: what it needs, and whether that fits."""

    value: int
    peak_bytes: int
    device_bytes: int
    fits: bool


class Memo:
    """Evaluations by index, each made once, and the bytes that they must not exceed."""

    def __init__(self, evaluate: Callable[[int], Tried], limit_bytes: int) -> None:
        self.evaluate, self.limit_bytes = evaluate, limit_bytes
        self.known: dict[int, Tried] = {}

    def __call__(self, index: int) -> Tried:
        """The evaluation of a choice."""
        if index not in self.known:
            self.known[index] = self.evaluate(index)
        return self.known[index]

    @property
    def tried(self) -> tuple[Tried, ...]:
        """All evaluations in order of their value."""
        return tuple(sorted(self.known.values(), key=lambda one: one.value))


def last_that_fits(memo: Memo, count: int | None, start: int = 1) -> int | None:
    """Index of the last choice that fits, None if the first does not.

    Parameters
    ----------
    memo
        Evaluations of choices in order of growing memory.
    count
        Number of choices; None is no bound.
    start
        Choice to look at behind the first.

    Notes
    -----
    Memory is nearly a straight line in most fields, so inside the bracket the crossing is interpolated and
    looked at with its neighbour; then the bracket is halved, so that kinks and steps cost little. The answer
    fits and the next choice does not: both were evaluated.
    """
    end = MOST if count is None else count
    if not memo(0).fits:
        return None
    low, high = 0, max(1, start)
    while high < end and memo(high).fits:
        low, high = high, high * GROWTH
    if high >= end:
        if memo(end - 1).fits:
            return end - 1
        high = end - 1
    while high - low > 1:
        guess = crossing(memo, low, high)
        low, high = narrowed(memo, low, high, guess)
        near = low + 1 if low == guess else high - 1
        for further in (near, (low + high) // 2):
            if low < further < high:
                low, high = narrowed(memo, low, high, further)
    return low


def narrowed(memo: Memo, low: int, high: int, guess: int) -> tuple[int, int]:
    """The bracket after a guess inside it."""
    return (guess, high) if memo(guess).fits else (low, guess)


def crossing(memo: Memo, low: int, high: int) -> int:
    """Index inside a bracket where the line through its ends meets the limit."""
    below, above = memo(low).device_bytes, memo(high).device_bytes
    if above <= below:
        return (low + high) // 2
    share = (memo.limit_bytes - below) / (above - below)
    return min(max(low + int(share * (high - low)), low + 1), high - 1)


def first_that_fits(memo: Memo, count: int | None) -> int | None:
    """Index of the first choice that fits, for choices in order of falling memory; None if none does.

    Choices are doubled until one fits or needs no less than the one before; between the last that does not
    fit and the first that does the bracket is halved.
    """
    end = MOST if count is None else count
    low, high = -1, 0
    while not memo(high).fits:
        stuck = low >= 0 and memo(high).device_bytes >= memo(low).device_bytes
        if stuck or high == end - 1:
            return None
        low, high = high, min(2 * high + 1, end - 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if memo(middle).fits else (middle, high)
    return high
