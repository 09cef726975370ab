"""What each collective is to achieve: who holds which chunk before, and who must hold what after."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

Held = frozenset[int] | None
"""The ranks whose data is summed in a chunk on a rank; None where the rank does not hold the chunk."""

State = tuple[tuple[Held, ...], ...]
"""Rank × chunk → what it holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A collective, for any number of ranks n."""

    name: str
    words: str
    """How a sentence names it."""
    summary: str
    """One line: before and after."""
    chunks: Callable[[int], int]
    """n → chunks in all; every rank has a place for each."""
    parts: Callable[[int], int]
    """n → chunks in the full buffer of S bytes, so that a chunk has ceil(S / parts) bytes."""
    holds: Callable[[int, int, int], bool]
    """(n, rank, chunk) → whether the rank holds its own data for the chunk before the first step."""
    wants: Callable[[int], Mapping[tuple[int, int], frozenset[int]]]
    """n → (rank, chunk) → the ranks whose data must be in it after the last step."""
    bus_factor: Callable[[int], float]
    """n → bus bandwidth over algorithm bandwidth (nccl-tests, doc/PERFORMANCE.md)."""

    def start(self, ranks: int) -> State:
        """Return the state before the first step."""
        chunks = range(self.chunks(ranks))
        return tuple(
            tuple(frozenset((rank,)) if self.holds(ranks, rank, chunk) else None for chunk in chunks)
            for rank in range(ranks)
        )


def _share(ranks: int) -> float:
    return (ranks - 1) / ranks


def _sums(
    pairs: Callable[[int], list[tuple[int, int]]],
) -> Callable[[int], dict[tuple[int, int], frozenset[int]]]:
    return lambda n: dict.fromkeys(pairs(n), frozenset(range(n)))


ALL_REDUCE = Operation(
    name="all_reduce",
    words="all-reduce",
    summary="every rank has a buffer; after it every rank has the sum of all",
    chunks=lambda n: n,
    parts=lambda n: n,
    holds=lambda n, rank, chunk: True,
    wants=_sums(lambda n: [(rank, chunk) for rank in range(n) for chunk in range(n)]),
    bus_factor=lambda n: 2 * _share(n),
)

REDUCE_SCATTER = Operation(
    name="reduce_scatter",
    words="reduce-scatter",
    summary="every rank has a buffer; after it rank i has chunk i of the sum, and only that",
    chunks=lambda n: n,
    parts=lambda n: n,
    holds=lambda n, rank, chunk: True,
    wants=_sums(lambda n: [(rank, rank) for rank in range(n)]),
    bus_factor=_share,
)

ALL_GATHER = Operation(
    name="all_gather",
    words="all-gather",
    summary="rank i has chunk i; after it every rank has all chunks",
    chunks=lambda n: n,
    parts=lambda n: n,
    holds=lambda n, rank, chunk: rank == chunk,
    wants=lambda n: {(rank, chunk): frozenset((chunk,)) for rank in range(n) for chunk in range(n)},
    bus_factor=_share,
)

ALL_TO_ALL = Operation(
    name="all_to_all",
    words="all-to-all",
    summary="every rank has a block for each rank; after it every rank has a block from each",
    chunks=lambda n: n * n,
    parts=lambda n: n,
    holds=lambda n, rank, chunk: chunk // n == rank,
    wants=lambda n: {(dst, src * n + dst): frozenset((src,)) for src in range(n) for dst in range(n)},
    bus_factor=_share,
)

SEND_RECV = Operation(
    name="send_recv",
    words="send/receive",
    summary="rank i has a message; after it the rank that it was sent to has it too",
    chunks=lambda n: n,
    parts=lambda n: 1,
    holds=lambda n, rank, chunk: rank == chunk,
    wants=lambda n: {(1, 0): frozenset((0,))} if n > 1 else {},
    bus_factor=lambda n: 1.0,
)

OPERATIONS = {
    operation.name: operation for operation in (ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, SEND_RECV)
}


def find_operation(name: str) -> Operation:
    """Look an operation up by name; case and `-` for `_` do not matter.

    Raises
    ------
    ValueError
        If there is none; the text lists those there are.
    """
    operation = OPERATIONS.get(name.strip().lower().replace("-", "_"))
    if operation is None:
        raise ValueError(f"{name!r} is not a collective; use one of {', '.join(OPERATIONS)}")
    return operation
