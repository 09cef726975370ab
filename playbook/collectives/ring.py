"""Ring: every rank sends to the next and receives from the one before."""

from __future__ import annotations

from playbook.collectives.algorithm import Algorithm, Phase
from playbook.collectives.steps import Step, Transfer


def reduce_scatter(n: int) -> list[Step]:
    """Pass partial sums on, n − 1 times; rank i ends with chunk i, which is where a library delivers it."""
    return [tuple(Transfer(i, (i + 1) % n, (i - 1 - s) % n, True) for i in range(n)) for s in range(n - 1)]


def all_gather(n: int) -> list[Step]:
    """Pass finished chunks on, n − 1 times; rank i begins with chunk i."""
    return [tuple(Transfer(i, (i + 1) % n, (i - s) % n, False) for i in range(n)) for s in range(n - 1)]


def all_to_all(n: int) -> list[Step]:
    """Relay blocks to the neighbour; each rank takes its own out, so messages shrink at every hop."""
    return [
        tuple(
            Transfer(i, (i + 1) % n, (i - s) % n * n + (i - s + hops) % n, False)
            for i in range(n)
            for hops in range(s + 1, n)
        )
        for s in range(n - 1)
    ]


def send_recv(n: int) -> list[Step]:
    """Send every rank's message to the next rank, as in nccl-tests."""
    return [tuple(Transfer(i, (i + 1) % n, i, False) for i in range(n))] if n > 1 else []


REDUCE_SCATTER = Phase(words="reduce-scatter", steps=reduce_scatter, load=lambda n: [1] * (n - 1))
ALL_GATHER = Phase(words="all-gather", steps=all_gather, load=lambda n: [1] * (n - 1))
ALL_TO_ALL = Phase(words="all-to-all", steps=all_to_all, load=lambda n: range(n - 1, 0, -1))
SEND_RECV = Phase(words="send/receive", steps=send_recv, load=lambda n: [1] * (n > 1))

ALGORITHM = Algorithm(
    name="ring",
    summary="to the next rank, from the one before: fewest bytes, latency grows with the ranks",
    source="Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms, 2009",
    phases={
        "all_reduce": (REDUCE_SCATTER, ALL_GATHER),
        "all_gather": (ALL_GATHER,),
        "reduce_scatter": (REDUCE_SCATTER,),
        "all_to_all": (ALL_TO_ALL,),
        "send_recv": (SEND_RECV,),
    },
)
