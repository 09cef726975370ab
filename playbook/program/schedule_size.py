"""Sizes of a schedule: whole numbers, and not so large that making one takes minutes."""

from __future__ import annotations

MOST_ACTIONS = 5_000_000
"""Forwards and backwards of all ranks that a schedule by name may have: seconds, and some 100 MB."""


def check_size(stages: int, microbatches: int, chunks: int) -> None:
    """Refuse a size that would run silently for minutes.

    Raises
    ------
    ValueError
        If it has more than `MOST_ACTIONS`.
    """
    count = 2 * stages * chunks * microbatches
    if count <= MOST_ACTIONS:
        return
    most = MOST_ACTIONS // (2 * stages * chunks)
    better = f"microbatches={most} or fewer" if most else "fewer stages"
    raise ValueError(
        f"stages={stages}, chunks={chunks}, microbatches={microbatches} are {count} forwards and backwards, "
        f"and {MOST_ACTIONS} the most; use {better}"
    )


def whole_count(what: str, value: int | None) -> int:
    """Return a size that has to be a whole number, 1 or more.

    Raises
    ------
    TypeError
        If it is no whole number.
    ValueError
        If it is missing or less than 1.
    """
    if value is None:
        raise ValueError(f"{what} is missing; a schedule by name needs it, as in schedule('1f1b', 4, 16)")
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{what}={value!r} is no whole number; use 1 or more")
    if value < 1:
        raise ValueError(f"{what}={value}; use 1 or more")
    return int(value)
