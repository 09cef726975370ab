"""Which rank owns which stage."""

from __future__ import annotations


def loop(ranks: int, chunks: int) -> tuple[int, ...]:
    """Stages go round the ranks: rank r owns r, p + r, 2p + r, …

    Examples
    --------
    >>> loop(3, 2)
    (0, 1, 2, 0, 1, 2)
    """
    return tuple(range(ranks)) * chunks


def v_shape(ranks: int, chunks: int = 2) -> tuple[int, ...]:
    """Stages go down the ranks and up again, so that rank 0 owns the first and the last.

    Examples
    --------
    >>> v_shape(3)
    (0, 1, 2, 2, 1, 0)
    """
    down = tuple(range(ranks))
    return sum(((down if chunk % 2 == 0 else down[::-1]) for chunk in range(chunks)), ())
