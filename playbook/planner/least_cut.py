"""The cut with the fastest slowest rank, and the one whose fullest rank holds least, for any order."""

from __future__ import annotations

from collections.abc import Sequence

from playbook.planner.cut_costs import CutCosts
from playbook.planner.cuts import Demand, cut_line, cut_pairs
from playbook.planner.descent import descend

CLOSE = 1e-9
"""Seconds closer than this part of them count as equal."""


def equal_cut(layers: int, stages: int) -> tuple[int, ...]:
    """As many layers on each stage; the first ones have one more where it does not divide.

    Examples
    --------
    >>> equal_cut(10, 4)
    (3, 3, 2, 2)
    """
    size, more = divmod(layers, stages)
    return (size + 1,) * more + (size,) * (stages - more)


def least_cut(costs: CutCosts, cap: float | None) -> tuple[tuple[int, ...] | None, bool]:
    """The cut with the fastest slowest rank under a cap, and whether that is proven."""
    order = costs.order
    if order.depth == order.stages and order.chains == 1:
        seconds = [costs.seconds_demand([stage], float("inf")) for stage in range(order.stages)]
        others = [costs.bytes_demands(stage, cap, [stage]) for stage in range(order.stages)]
        return cut_line(seconds, others, len(costs.layers)), True
    pairs = _pairs(costs)
    if pairs is not None:
        return _least_of_pairs(costs, cap, pairs), True
    return _descended(costs, cap), False


def _pairs(costs: CutCosts) -> list[tuple[int, int]] | None:
    """The two stages of each rank, or of two ranks that mirror each other; None for other orders."""
    order = costs.order
    p, depth = order.stages, order.depth
    if order.chains == 2 and p % 2 == 0 and depth == p:
        return [(rank, p - 1 - rank) for rank in range(p // 2)]
    if order.chains == 1 and depth == 2 * p:
        loop = [(rank, p + rank) for rank in range(p)]
        v_shape = [(rank, 2 * p - 1 - rank) for rank in range(p)]
        found = [tuple(costs.slots(rank)) for rank in range(p)]
        return next((pairs for pairs in (loop, v_shape) if pairs == found), None)
    return None


def _least_of_pairs(
    costs: CutCosts, cap: float | None, pairs: Sequence[tuple[int, int]]
) -> tuple[int, ...] | None:
    """First the fastest slowest rank, then the fastest slowest stage, then as even as steps make it."""
    layers, nested = len(costs.layers), pairs[0][1] == costs.order.depth - 1 and len(pairs) > 1
    share = 1.0 / costs.order.chains

    def demands(limit: float, stage_limit: float | None = None) -> list[list[Demand]]:
        return [
            [
                costs.seconds_demand(pair, limit, share),
                *([] if stage_limit is None else costs.stage_demands(pair, stage_limit)),
                *(one for rank in _ranks_of(costs, pair) for one in costs.bytes_demands(rank, cap, pair)),
            ]
            for pair in pairs
        ]

    def slowest_rank(cut: tuple[int, ...]) -> float:
        return float(costs.rank_seconds(cut).max())

    def slowest_stage(cut: tuple[int, ...]) -> float:
        return float(costs.by_stage(cut, "seconds").max())

    start = _descended(costs, cap)
    total = float(costs.by_stage(equal_cut(layers, costs.order.depth), "seconds").sum())
    low = share * total / len(pairs) * (1 - CLOSE)
    found = cut_pairs(demands, slowest_rank, start, low, total, layers, nested)
    if found is None:
        return None
    most = slowest_rank(found) * (1 + CLOSE)
    found = _descended(costs, cap, most, found) or found
    low = total / costs.order.depth * (1 - CLOSE)
    even = cut_pairs(lambda limit: demands(most, limit), slowest_stage, found, low, total, layers, nested)
    return _descended(costs, cap, most, even or found) or even


def _ranks_of(costs: CutCosts, pair: tuple[int, int]) -> list[int]:
    """Ranks that hold a pair of stages: one, or two that mirror each other."""
    return sorted({costs.order.placement[stage] for stage in pair})


def _descended(
    costs: CutCosts, cap: float | None, most: float = 0.0, start: tuple[int, ...] | None = None
) -> tuple[int, ...] | None:
    """A good cut for any placement; None if it does not keep the cap.

    Least excess over the cap, then over the time that a rank is allowed, then the fastest slowest stage, then
    ranks and stages as even as can be.
    """

    def score(cut: tuple[int, ...]) -> tuple[float, ...]:
        excess = 0.0 if cap is None else max(0.0, float(costs.rank_bytes(cut).max()) - cap)
        stages, ranks = costs.by_stage(cut, "seconds"), costs.rank_seconds(cut)
        late = max(0.0, float(ranks.max()) - most)
        return excess, late, float(stages.max()), float((ranks**2).sum() + (stages**2).sum())

    found = descend(start or equal_cut(len(costs.layers), costs.order.depth), score)
    return found if score(found)[0] == 0 else None


def smallest_cut(costs: CutCosts) -> tuple[int, ...]:
    """The cut whose fullest rank holds least; found by steps where a rank has more than two stages."""
    layers, order = len(costs.layers), costs.order

    def score(cut: tuple[int, ...]) -> tuple[float, ...]:
        size = costs.rank_bytes(cut)
        return float(size.max()), float((size**2).sum())

    start = descend(equal_cut(layers, order.depth), score)
    if order.depth == order.stages and order.chains == 1:
        lines = [costs.bytes_demands(stage, float("inf"), [stage])[0] for stage in range(order.stages)]
        return cut_line(lines, [[] for _ in lines], layers) or start
    pairs = _pairs(costs)
    if pairs is None:
        return start

    def demands(limit: float) -> list[list[Demand]]:
        ranks = [(_ranks_of(costs, pair), pair) for pair in pairs]
        return [[d for r in both for d in costs.bytes_demands(r, limit, pair)] for both, pair in ranks]

    nested = pairs[0][1] == order.depth - 1 and len(pairs) > 1
    return cut_pairs(demands, lambda cut: score(cut)[0], start, 0.0, 0.0, layers, nested) or start
