"""What is fitted to the training half of the Ultra-Scale memory column, and what a run holds by it."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement

import numpy as np
from numpy.typing import NDArray

from benchmarks.ultrascale import GIB, Run, milliseconds_a_layer
from benchmarks.ultrascale_replay import reserved_bytes

BASES_GIB = np.arange(0, 0.55, 0.05)
QUEUES = np.arange(20, 38, 2)
PACES_MS = np.arange(5, 20, 1)
ALLOCATOR_GIB = np.arange(56, 80, 2)
NODE = 8
"""GPUs of a node."""
Values = NDArray[np.float64]
Held = Mapping[int, tuple[float, float]]
"""By row: what the allocator holds with the host in step, and with the host ahead, in GiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """What is fitted.

    Parameters
    ----------
    base_gib
        What the allocator holds beside the replayed tensors.
    queue_layers
        Layers' forwards that fill the queue of launches.
    allocator_gib
        What an 80 GB card leaves to the allocator, beside CUDA's context and what NCCL takes for the
        communicators of a run.
    spanning_gib
        The same where data-parallel ranks lie on several nodes, which takes one more communicator that does.
    pace_ms
        A run whose layer takes less than this times √tp for a micro-batch has its host ahead.
    """

    base_gib: float
    queue_layers: float
    allocator_gib: float
    spanning_gib: float
    pace_ms: float

    def limit_gib(self, run: Run) -> float:
        """What a run's card leaves to the allocator."""
        return self.spanning_gib if spans_nodes(run) else self.allocator_gib

    def reserved(self, some: Iterable[Run], held: Held) -> Values:
        """Reserved memory of each run with the host in step and with the host ahead, in GiB."""
        return np.array([held[run.row] for run in some]) + self.base_gib


def spans_nodes(run: Run) -> bool:
    """Whether the data-parallel ranks of a run lie on several nodes; tensor parallel ranks count first."""
    return run.dp > 1 and run.dp * run.tp > NODE


def replayed(
    some: Iterable[Run], queue: float = 0, limit_gib: Callable[[Run], float] = lambda run: math.inf
) -> dict[int, float]:
    """What the allocator of rank 0 holds in its replay; without tensor parallelism no block waits."""
    return {
        run.row: reserved_bytes(run, queue=queue if run.tp > 1 else 0, limit=limit_gib(run) * GIB) / GIB
        for run in some
    }


def limited(
    some: Iterable[Run], free: Mapping[int, float], queue: float, limit_gib: Callable[[Run], float]
) -> dict[int, float]:
    """What a replay holds that has a limit, given what it holds without: only what is above it changes."""
    return {**free, **replayed([run for run in some if free[run.row] > limit_gib(run)], queue, limit_gib)}


def joined(near: Mapping[int, float], far: Mapping[int, float]) -> Held:
    """Both kinds of the rows of `far`."""
    return {row: (near[row], gib) for row, gib in far.items()}


def chosen(some: list[Run], both: Values, pace_ms: float) -> Values:
    """What the kind that a run's speed tells holds."""
    kinds = [int(ahead(run, pace_ms)) for run in some]
    return both[np.arange(len(some)), kinds]


def ahead(run: Run, pace_ms: float) -> bool:
    """Whether a run's speed tells that its host is ahead."""
    return run.tp > 1 and milliseconds_a_layer(run) < pace_ms * run.tp**0.5


def fit(some: list[Run], near: Mapping[int, float]) -> Constants:
    """Constants with the smallest sum of median and 90th percentile of the error.

    Base, queue and limits are fitted with each run of the nearer kind, then the pace with those.
    """
    measured, spanning = published(some), np.array([spans_nodes(run) for run in some])[:, None]

    def loss(told: Values) -> float:
        error = np.abs(told / measured[:, None] - 1)
        return float(np.quantile(error.min(axis=1), (0.5, 0.9)).sum())

    found: list[tuple[float, Constants, Values]] = []
    close = under_limits(some, near, 0)
    for queue in QUEUES.tolist():
        far = under_limits(some, replayed(some, queue), queue)
        for low, high in combinations_with_replacement(ALLOCATOR_GIB.tolist(), 2):
            kinds = (np.where(spanning, held[low], held[high]) for held in (close, far))
            level = np.concatenate(list(kinds), axis=1)
            for base in BASES_GIB.tolist():
                given = Constants(
                    base_gib=base, queue_layers=queue, allocator_gib=high, spanning_gib=low, pace_ms=0.0
                )
                found.append((loss(level + base), given, level + base))
    _, level_constants, both = min(found, key=lambda each: each[0])
    pace_ms = min(PACES_MS.tolist(), key=lambda pace: loss(chosen(some, both, pace)[:, None]))
    return replace(level_constants, pace_ms=float(pace_ms))


def under_limits(some: list[Run], free: Mapping[int, float], queue: float) -> dict[float, Values]:
    """What replays hold under each limit that is tried, a column."""
    held = {limit: limited(some, free, queue, lambda run, gib=limit: gib) for limit in ALLOCATOR_GIB.tolist()}
    return {limit: np.array([[by_row[run.row]] for run in some]) for limit, by_row in held.items()}


def published(some: Iterable[Run]) -> Values:
    """The table's figures, in GiB."""
    return np.array([run.reserved_gib for run in some], dtype=float)
