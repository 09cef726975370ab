"""`cut_stages`: which layers go to which pipeline stage, so that the slowest one is as fast as can be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from playbook.planner.cut_costs import CutCosts
from playbook.planner.cuts import Demand, cut_line, cut_pairs, descend
from playbook.predict.layer_costs import LayerCost
from playbook.predict.layer_costs import layer_costs as predicted_costs
from playbook.predict.stages import pipeline
from playbook.spec import Scenario
from playbook.spec.rules import positive
from playbook.units import gb, seconds

if TYPE_CHECKING:
    from pandas import DataFrame

CLOSE = 1e-9
"""Seconds closer than this part of them count as equal."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class StageCut:
    """Layers by stage, beside the equal cut.

    Parameters
    ----------
    costs
        What the layers cost, on the order that they were cut for.
    stage_layers
        Layers of each stage in order of depth, as `Layout.stage_layers` takes them; their sum is the model's.
        The embedding belongs to the first stage and the head to the last.
    equal_layers
        The same with as many layers on each stage, the first ones with one more where it does not divide.
    memory_cap_bytes
        Most bytes on a rank; None for no cap.
    proven
        Whether no cut has a faster slowest rank (to one part in a million). True with one or two stages a
        rank; with more, single layers were moved as long as that helped.
    """

    costs: CutCosts
    stage_layers: tuple[int, ...]
    equal_layers: tuple[int, ...]
    memory_cap_bytes: float | None
    proven: bool

    @property
    def seconds(self) -> tuple[float, ...]:
        """Forward and backward of one micro-batch on each stage."""
        return tuple(self.costs.by_stage(self.stage_layers, "seconds").tolist())

    @property
    def equal_seconds(self) -> tuple[float, ...]:
        """The same under the equal cut."""
        return tuple(self.costs.by_stage(self.equal_layers, "seconds").tolist())

    @property
    def rank_seconds(self) -> tuple[float, ...]:
        """One micro-batch on each rank, all its stages; what the slowest of is minimised."""
        return tuple(self.costs.rank_seconds(self.stage_layers).tolist())

    @property
    def equal_rank_seconds(self) -> tuple[float, ...]:
        """The same under the equal cut."""
        return tuple(self.costs.rank_seconds(self.equal_layers).tolist())

    @property
    def bytes(self) -> tuple[int, ...]:
        """State and activations in flight at the worst time, on each rank."""
        return tuple(round(size) for size in self.costs.rank_bytes(self.stage_layers))

    @property
    def equal_bytes(self) -> tuple[int, ...]:
        """The same under the equal cut."""
        return tuple(round(size) for size in self.costs.rank_bytes(self.equal_layers))

    @property
    def table(self) -> DataFrame:
        """Rows by stage: rank (of the first direction), layers, first_layer, seconds, rank_bytes, equal_…"""
        from pandas import DataFrame

        order, size, equal = self.costs.order, self.bytes, self.equal_bytes
        return DataFrame(
            {
                "stage": stage,
                "rank": order.placement[stage],
                "layers": layers,
                "first_layer": sum(self.stage_layers[:stage]),
                "seconds": self.seconds[stage],
                "rank_bytes": size[order.placement[stage]],
                "equal_layers": self.equal_layers[stage],
                "equal_seconds": self.equal_seconds[stage],
                "equal_rank_bytes": equal[order.placement[stage]],
            }
            for stage, layers in enumerate(self.stage_layers)
        )

    def __repr__(self) -> str:
        what = "stage" if len(self.costs.slots(0)) == 1 else "rank"
        equal, found = max(self.equal_rank_seconds), max(self.rank_seconds)
        where = self._where(self.equal_rank_seconds.index(equal), what)
        over = self.memory_cap_bytes is not None and max(self.equal_bytes) > self.memory_cap_bytes
        beyond = (
            f" and {gb(max(self.equal_bytes))} where {gb(self.memory_cap_bytes or 0)} fit" if over else ""
        )
        sure = "" if self.proven else "; not proven the least"
        return (
            f"StageCut({','.join(map(str, self.stage_layers))}; equal cut: slowest {what} {seconds(equal)} "
            f"({where}){beyond}; this cut {seconds(found)}{sure}; predicted, one micro-batch)"
        )

    def _where(self, rank: int, what: str) -> str:
        """Which rank, and which end of the model it holds."""
        order = self.costs.order
        stages = {slot % order.depth for slot in self.costs.slots(rank)}
        ends = [
            word
            for stage, end, word in (
                (0, self.costs.first_end, "the embedding"),
                (order.depth - 1, self.costs.last_end, "the head"),
            )
            if end is not None and stage in stages
        ]
        return f"{what} {rank}{', with ' + ' and '.join(ends) if ends else ''}"


def cut_stages(
    s: Scenario,
    *,
    memory_cap_bytes: float | None = None,
    layer_costs: Sequence[LayerCost] | None = None,
) -> StageCut:
    """Cut a scenario's layers into its pipeline stages.

    Parameters
    ----------
    s
        The scenario: its layout gives ranks, chunks and schedule, its batch the micro-batches; stage_layers
        that it has are not read.
    memory_cap_bytes
        Most bytes on a rank: state of its stages, and the activations of the chunks alive at the worst time
        of its order. None for no cap.
    layer_costs
        Costs of the layers, one micro-batch on one rank, in order of depth, with "embedding" before and
        "head" behind them if they count; predicted from the scenario if not given. For layers that the
        prediction does not know (mixtures of experts), or measured ones.

    Returns
    -------
    StageCut
        The contiguous cut with the fastest slowest rank, a rank's time being the sum of its stages'; with two
        stages a rank, of those cuts one with the fastest slowest stage; with one, the most even one.

    Raises
    ------
    ValueError
        If nothing fits (which rank is over, and by how much, at the cut that comes closest), if there are
        more stages than layers, or if `layer_costs` has not as many layers as the model.

    Notes
    -----
    Each layer is in exactly one stage: the stages' layers add up to the model's. Messages between stages are
    not part of a stage's time.
    """
    order = pipeline(s)
    if order.depth > s.model.layers:
        raise ValueError(
            f"{order.depth} stages but {s.model.name} has {s.model.layers} layers; use no more stages"
        )
    cap = None if memory_cap_bytes is None else positive("memory_cap_bytes", memory_cap_bytes)
    given = predicted_costs(s) if layer_costs is None else layer_costs
    costs = CutCosts.of(order, given, s.model.layers)
    found, proven = _least(costs, cap)
    if found is None:
        raise ValueError(_refusal(costs, cap or 0.0, proven))
    return StageCut(
        costs=costs,
        stage_layers=found,
        equal_layers=equal_cut(s.model.layers, order.depth),
        memory_cap_bytes=cap,
        proven=proven,
    )


def equal_cut(layers: int, stages: int) -> tuple[int, ...]:
    """As many layers on each stage; the first ones have one more where it does not divide.

    Examples
    --------
    >>> equal_cut(10, 4)
    (3, 3, 2, 2)
    """
    size, more = divmod(layers, stages)
    return (size + 1,) * more + (size,) * (stages - more)


def _least(costs: CutCosts, cap: float | None) -> tuple[tuple[int, ...] | None, bool]:
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
        found = [costs.slots(rank) for rank in range(p)]
        if all(len(slots) == 2 and slots[0] == rank for rank, slots in enumerate(found)):
            return [(slots[0], slots[1]) for slots in found]
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


def _refusal(costs: CutCosts, cap: float, proven: bool) -> str:
    """Which rank is over the cap, and by how much, at the cut that comes closest."""
    layers, stages = len(costs.layers), costs.order.depth
    closest = _smallest(costs)
    size, fits = costs.rank_bytes(closest), "fits" if proven else "was found to fit"
    rank, most = int(size.argmax()), float(size.max())
    return (
        f"memory_cap_bytes={cap:g}: no cut of {layers} layers into {stages} stages {fits}; at the closest, "
        f"{','.join(map(str, closest))}, rank {rank} holds {gb(most)}, {gb(most - cap)} over; use "
        f"{most:.0f} bytes or more, more stages, or recomputation"
    )


def _smallest(costs: CutCosts) -> tuple[int, ...]:
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
