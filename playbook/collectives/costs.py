"""What the algorithms of one collective cost on a link, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from playbook.collectives.collective import Collective, collective
from playbook.collectives.operation import find_operation
from playbook.collectives.registry import algorithms
from playbook.spec import Link

if TYPE_CHECKING:
    from pandas import DataFrame


def collective_costs(op: str, ranks: int, size_bytes: int | Sequence[int], link: Link) -> DataFrame:
    """Tabulate every algorithm of an operation over one or more sizes.

    Parameters
    ----------
    op
        The operation, as in `collective`.
    ranks
        Ranks that take part, at least 1.
    size_bytes
        The full buffer, or several.
    link
        Latency in seconds and bandwidth in bytes per second and direction, equal for all ranks.

    Returns
    -------
    DataFrame
        Rows by algorithm and size: algorithm, ranks, bytes, steps, bytes_sent_per_rank, seconds, algbw and
        busbw in bytes per second (algbw = bytes / seconds, busbw = algbw · bus_factor), source.
    """
    from pandas import DataFrame

    operation = find_operation(op)
    sizes = [size_bytes] if isinstance(size_bytes, int) else list(size_bytes)
    able = [name for name, algorithm in algorithms().items() if operation.name in algorithm.phases]
    made = [collective(operation.name, name, ranks) for name in able]
    return DataFrame([_cost(one, int(size), link) for one in made for size in sizes])


def _cost(one: Collective, size_bytes: int, link: Link) -> dict[str, object]:
    seconds = one.seconds(size_bytes, link)
    algorithm_bandwidth = size_bytes / seconds if seconds else float("nan")
    return {
        "algorithm": one.algorithm,
        "ranks": one.ranks,
        "bytes": size_bytes,
        "steps": len(one.load),
        "bytes_sent_per_rank": one.bytes_sent_per_rank(size_bytes),
        "seconds": seconds,
        "algbw": algorithm_bandwidth,
        "busbw": algorithm_bandwidth * one.bus_factor,
        "source": "formula",
    }
