"""Which rank owns which stage."""

from __future__ import annotations

from collections.abc import Sequence


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


def chunks_of(placement: Sequence[int], chains: int = 1) -> int:
    """Most stages of one chain that one rank holds.

    Examples
    --------
    >>> chunks_of((0, 1, 1, 0)), chunks_of((0, 1, 1, 0), chains=2)
    (2, 1)
    """
    return max(part.count(rank) for part in _parts(placement, chains) for rank in part)


def two_ways(stages: int) -> str:
    """Say how an order whose micro-batches pass just one half of the stages each is read."""
    half = stages // 2
    return (
        f"no micro-batch passes both stages 0 to {half - 1} and stages {half} to {stages - 1}, so this is "
        f"read as two directions: stage {half} is a second copy of stage 0, and so on"
    )


def _parts(placement: Sequence[int], chains: int) -> list[Sequence[int]]:
    depth = len(placement) // chains
    return [placement[first : first + depth] for first in range(0, len(placement), depth)]


def placement_words(placement: Sequence[int], chains: int = 1) -> tuple[str, ...]:
    """Say of each rank what it holds, and where the loss is: not always on the last rank.

    Parameters
    ----------
    placement
        Rank of each stage.
    chains
        Directions; with 2 the second half of the stages are copies that micro-batches pass the other way.

    Examples
    --------
    >>> placement_words(v_shape(2))
    ('rank 0 holds stages 0 and 3 and the loss', 'rank 1 holds stages 1 and 2')
    """
    ways = ("",) if chains == 1 else (" down", " up")
    said = []
    for rank in range(max(placement) + 1):
        held = [
            _held(rank, part, way)
            for part, way in zip(_parts(placement, chains), ways, strict=True)
            if rank in part
        ]
        said.append(f"rank {rank} holds {' and '.join(held)}")
    return tuple(said)


def _held(rank: int, part: Sequence[int], way: str) -> str:
    stages = [str(stage) for stage, owner in enumerate(part) if owner == rank]
    listed = stages[0] if len(stages) == 1 else f"{', '.join(stages[:-1])} and {stages[-1]}"
    loss = f" and the loss{way}" if part[-1] == rank else ""
    return f"stage{'s' if len(stages) > 1 else ''} {listed}{way}{loss}"
