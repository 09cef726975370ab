"""`cut_stages`: which layers go to which pipeline stage, so that the slowest one is as fast as can be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from playbook.planner.capped_cut import capped_cut
from playbook.planner.cut_costs import CutCosts
from playbook.planner.cut_step import CutStep, StepOf, calibrated, predicted_step, step_of_costs
from playbook.planner.least_cut import equal_cut, least_cut
from playbook.predict.layer_costs import LayerCost
from playbook.predict.layer_costs import layer_costs as predicted_costs
from playbook.predict.stages import pipeline
from playbook.spec import Scenario
from playbook.spec.rules import positive
from playbook.units import counted, gb, seconds

if TYPE_CHECKING:
    from pandas import DataFrame


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
        rank; with more, single layers were moved as long as that helped. Under a cap that the fastest cut
        does not keep, bytes count by their sums over layers, and only if these were exact.
    step_of
        Simulates a step under a cut.
    """

    costs: CutCosts
    stage_layers: tuple[int, ...]
    equal_layers: tuple[int, ...]
    memory_cap_bytes: float | None
    proven: bool
    step_of: StepOf

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
        """Peak of each rank, as `playbook memory` gives it; with costs that were given, state and
        activations in flight at the worst time."""
        return self.step.bytes

    @property
    def equal_bytes(self) -> tuple[int, ...]:
        """The same under the equal cut."""
        return self.equal_step.bytes

    @cached_property
    def step(self) -> CutStep:
        """One step under this cut, simulated: what all ranks together take, waits included."""
        return self.step_of(self.stage_layers)

    @cached_property
    def equal_step(self) -> CutStep:
        """The same under the equal cut."""
        return self.step_of(self.equal_layers)

    @property
    def step_seconds(self) -> float:
        """Seconds of a whole step, simulated."""
        return self.step.seconds

    @property
    def equal_step_seconds(self) -> float:
        """The same under the equal cut."""
        return self.equal_step.seconds

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
            f"({where}){beyond}; this cut {seconds(found)}{sure}; predicted, one micro-batch; "
            f"{self._step_words(over)})"
        )

    def _step_words(self, over: bool) -> str:
        """What the cut does to the whole step, and what to do if that is no gain."""
        before, after = self.equal_step_seconds, self.step_seconds
        change = f"{seconds(before)} → {seconds(after)}"
        if self.stage_layers == self.equal_layers or abs(after - before) <= 1e-6 * before:
            return f"simulated step {seconds(after)} under either"
        if after < before:
            return f"simulated step {change}"
        name = self.costs.order.name
        keep = "take it only since the equal one does not fit" if over else "keep the equal cut"
        return (
            f"but the simulated step gets slower, {change}: this cut changes when {name}'s actions can "
            f"start, and ranks wait longer than the slowest one saves; {keep}"
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
        Most bytes on a rank at its peak, as `playbook memory` gives it; with `layer_costs`, state of its
        stages and the activations of the chunks alive at the worst time of its order. None for no cap.
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
        If nothing fits (`NoCutFits`: which rank is over, and by how much, at the closest cut), if there are
        more stages than layers, or if `layer_costs` has not as many layers as the model.

    Notes
    -----
    Each layer is in exactly one stage: the stages' layers add up to the model's. Messages between stages are
    not part of a stage's time.
    """
    if not isinstance(s, Scenario):
        raise TypeError(
            f"s={s!r} must be a Scenario; use pb.Scenario(pb.model(...), pb.Workload(), pb.Layout(pp=4))"
        )
    order = pipeline(s)
    if order.depth > s.model.layers:
        raise ValueError(
            f"{order.depth} stages but {s.model.name} has {counted(s.model.layers, 'layer')}; use no "
            "more stages"
        )
    cap = None if memory_cap_bytes is None else positive("memory_cap_bytes", memory_cap_bytes)
    equal = equal_cut(s.model.layers, order.depth)
    costs = CutCosts.of(order, predicted_costs(s) if layer_costs is None else layer_costs, s.model.layers)
    step_of = predicted_step(s) if layer_costs is None else step_of_costs(costs)
    if cap is None:
        found, proven = least_cut(costs, None)
        assert found is not None, "without a cap there is a cut"
    else:
        found, proven = capped_cut(calibrated(costs, step_of, equal), step_of, cap)
    return StageCut(
        costs=costs,
        stage_layers=found,
        equal_layers=equal,
        memory_cap_bytes=cap,
        proven=proven,
        step_of=step_of,
    )
