"""Direct: every chunk goes straight to where it is wanted."""

from __future__ import annotations

from playbook.collectives.algorithm import Algorithm, Phase
from playbook.collectives.steps import Step, Transfer


def _others(rank: int, n: int) -> list[int]:
    return [(rank + hop) % n for hop in range(1, n)]


def all_reduce(n: int) -> list[Step]:
    """Send the whole buffer to every other rank at once: one latency, n − 1 buffers."""
    return _one_step(
        [Transfer(i, j, chunk, True) for i in range(n) for j in _others(i, n) for chunk in range(n)]
    )


def reduce_scatter(n: int) -> list[Step]:
    """Send each rank the chunk that it is to sum."""
    return _one_step([Transfer(i, j, j, True) for i in range(n) for j in _others(i, n)])


def all_gather(n: int) -> list[Step]:
    """Send the own chunk to every other rank."""
    return _one_step([Transfer(i, j, i, False) for i in range(n) for j in _others(i, n)])


def all_to_all(n: int) -> list[Step]:
    """Exchange pairwise: in step s every rank sends one block to the rank s further on."""
    return [
        tuple(Transfer(i, (i + s) % n, i * n + (i + s) % n, False) for i in range(n)) for s in range(1, n)
    ]


def send_recv(n: int) -> list[Step]:
    """Send one message, from rank 0 to rank 1."""
    return _one_step([Transfer(0, 1, 0, False)] if n > 1 else [])


def _one_step(transfers: list[Transfer]) -> list[Step]:
    return [tuple(transfers)] if transfers else []


def _once(chunks: int) -> list[int]:
    return [chunks] if chunks else []


ALGORITHM = Algorithm(
    name="direct",
    summary="straight to the rank that wants it: fewest steps",
    source="Thakur, Rabenseifner and Gropp, Optimization of collective operations in MPICH, 2005",
    phases={
        "all_reduce": (Phase(words="all-reduce", steps=all_reduce, load=lambda n: _once(n * (n - 1))),),
        "all_gather": (Phase(words="all-gather", steps=all_gather, load=lambda n: _once(n - 1)),),
        "reduce_scatter": (Phase(words="reduce-scatter", steps=reduce_scatter, load=lambda n: _once(n - 1)),),
        "all_to_all": (Phase(words="all-to-all", steps=all_to_all, load=lambda n: [1] * (n - 1)),),
        "send_recv": (Phase(words="send/receive", steps=send_recv, load=lambda n: [1] * (n > 1)),),
    },
)
