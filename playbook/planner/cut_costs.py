"""What a cut of the layers costs: seconds and bytes of each stage and rank, for one order of actions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from playbook.planner.cuts import Demand, Floats
from playbook.predict.layer_costs import LayerCost
from playbook.program.schedule import Schedule
from playbook.schedules.packed import B, F, W, unpack

FIELDS = (
    *("seconds", "forward_s", "backward_input_s", "backward_weight_s"),
    *("state_bytes", "activation_bytes"),
)
EMBEDDING, HEAD = "embedding", "head"
"""Names of the ends in a list of costs; the first stage holds the one, the last stage the other."""

Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CutCosts:
    """Layers with their ends, on the stages of an order."""

    order: Schedule
    layers: tuple[LayerCost, ...]
    first_end: LayerCost | None
    last_end: LayerCost | None
    alive: tuple[Counts, ...]
    """Per rank, the largest combinations of chunks alive on its slots; one row each."""
    sums: dict[str, Floats]
    """Field → its sum over the layers before each border."""
    extra_bytes: tuple[float, ...]
    """Per rank, what its peak has beside state and kept activations: temporaries and buffers of messages."""

    @classmethod
    def of(cls, order: Schedule, costs: Sequence[LayerCost], layers: int) -> CutCosts:
        """Take the ends from the list.

        Raises
        ------
        ValueError
            If the list has not as many layers as the model.
        """
        costs = tuple(costs)
        first = costs[0] if costs and costs[0].name == EMBEDDING else None
        last = costs[-1] if costs and costs[-1].name == HEAD else None
        inner = costs[first is not None : len(costs) - (last is not None)]
        if len(inner) != layers:
            raise ValueError(
                f"layer_costs has {len(inner)} layers beside its ends but the model has {layers}; give "
                f"{layers}, with {EMBEDDING!r} before and {HEAD!r} behind them if they count"
            )
        alive = tuple(most_alive(order, rank) for rank in range(order.stages))
        return cls(
            order=order,
            layers=inner,
            first_end=first,
            last_end=last,
            alive=alive,
            sums={field: _sums(inner, field) for field in FIELDS},
            extra_bytes=(0.0,) * order.stages,
        )

    def slots(self, rank: int) -> list[int]:
        """Slots of a rank."""
        return [slot for slot, owner in enumerate(self.order.placement) if owner == rank]

    def end_of(self, stage: int, field: str) -> float:
        """What an end adds to a stage."""
        ends = (
            self.first_end if stage == 0 else None,
            self.last_end if stage == self.order.depth - 1 else None,
        )
        return sum(float(getattr(end, field)) for end in ends if end is not None)

    def by_stage(self, cut: Sequence[int], field: str) -> Floats:
        """A field summed over each stage of a cut."""
        borders = np.concatenate(([0], np.cumsum(cut)))
        ends = [self.end_of(stage, field) for stage in range(len(cut))]
        return np.diff(self.sums[field][borders]) + np.array(ends)

    def rank_seconds(self, cut: Sequence[int]) -> Floats:
        """Seconds of each rank for one micro-batch, the mean of both directions where there are two."""
        stages = self.by_stage(cut, "seconds")
        sums = [sum(stages[s % self.order.depth] for s in self.slots(r)) for r in range(self.order.stages)]
        return np.array(sums) / self.order.chains

    def rank_bytes(self, cut: Sequence[int]) -> Floats:
        """Bytes of each rank: state of its stages, activations of the chunks alive at the worst time, and
        what it has beside."""
        state, kept = (self.by_stage(cut, field) for field in ("state_bytes", "activation_bytes"))
        found = []
        for rank, counts in enumerate(self.alive):
            stages = [slot % self.order.depth for slot in self.slots(rank)]
            alive = (counts @ kept[stages]).max()
            found.append(float(state[stages].sum() + alive + self.extra_bytes[rank]))
        return np.array(found)

    def seconds_demand(self, stages: Sequence[int], limit: float, share: float = 1.0) -> Demand:
        """Seconds of one or two stages together, times a share."""
        line = self.sums["seconds"] * share
        fixed = share * sum(self.end_of(stage, "seconds") for stage in stages)
        second = line if len(stages) > 1 else np.zeros_like(line)
        return Demand(first=line, second=second, fixed=fixed, limit=limit)

    def stage_demands(self, stages: Sequence[int], limit: float) -> list[Demand]:
        """Seconds of each of two stages."""
        line = self.sums["seconds"]
        none = np.zeros_like(line)
        ends = [self.end_of(stage, "seconds") for stage in stages]
        return [
            Demand(first=line, second=none, fixed=ends[0], limit=limit),
            Demand(first=none, second=line, fixed=ends[1], limit=limit),
        ]

    def bytes_demands(self, rank: int, cap_bytes: float | None, stages: Sequence[int]) -> list[Demand]:
        """Bytes of a rank's one or two stages, for each combination in flight; the stages in this order."""
        if cap_bytes is None:
            return []
        state, kept = self.sums["state_bytes"], self.sums["activation_bytes"]
        held = [slot % self.order.depth for slot in self.slots(rank)]
        demands = []
        for counts in self.alive[rank].tolist():
            by_stage = dict(zip(held, counts, strict=True))
            lines = [state + by_stage[stage] * kept for stage in stages]
            fixed = self.extra_bytes[rank] + sum(
                self.end_of(stage, "state_bytes") + by_stage[stage] * self.end_of(stage, "activation_bytes")
                for stage in stages
            )
            second = lines[1] if len(lines) > 1 else np.zeros_like(state)
            demands.append(Demand(first=lines[0], second=second, fixed=fixed, limit=cap_bytes))
        return demands


def _sums(layers: Sequence[LayerCost], field: str) -> Floats:
    return np.concatenate(([0.0], np.cumsum([float(getattr(layer, field)) for layer in layers])))


def most_alive(order: Schedule, rank: int) -> Counts:
    """Combinations of chunks alive on a rank's slots of which none is below another in every slot.

    Counted along the rank's order, from the start of F to the end of W or of a fused B. In an overlapped pair
    the forward has begun before the backward has ended.
    """
    slots = [slot for slot, owner in enumerate(order.placement) if owner == rank]
    slot, kind, _ = unpack(order.packed[rank])
    change = (kind == F).astype(np.int64) - ((kind == B) | (kind == W))
    counts = np.cumsum(np.where(slot[:, None] == np.array(slots)[None, :], change[:, None], 0), axis=0)
    rows = np.unique(counts, axis=0)
    beaten = [((rows >= row).all(axis=1) & (rows > row).any(axis=1)).any() for row in rows]
    return rows[~np.array(beaten)]
