"""A pipeline schedule at a size: what each rank runs, in which order."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from playbook.program.schedule_size import check_size, whole_count
from playbook.program.simulate import Cost, simulate
from playbook.program.simulation import Simulation
from playbook.schedules.action import Action
from playbook.schedules.orders import (
    Orders,
    chains_of,
    check_orders,
    orders_as_csv,
    placement_of,
    read_orders,
)
from playbook.schedules.packed import F, I, Packed, actions_of, pack_order, unpack
from playbook.schedules.placement import chunks_of, placement_words, two_ways
from playbook.schedules.registry import check_framework, find_plan
from playbook.units import counted


@dataclass(
    frozen=True, kw_only=True, eq=False, repr=False
)  # no slots: actions are made when asked for, and kept
class Schedule:
    """Each rank's actions in order.

    Examples
    --------
    >>> s = schedule("1f1b", stages=2, microbatches=2)
    >>> print(s.to_csv(), end="")
    0F0,0F1,0B0,0B1
    1F0,1B0,1F1,1B1
    >>> s.warmup
    (1, 0)
    """

    name: str
    stages: int
    """Pipeline ranks p."""
    microbatches: int
    """Micro-batches m of one optimizer step."""
    chunks: int
    """Stages that each rank owns, v."""
    placement: tuple[int, ...]
    """Rank of each of the p · v stages; with several chains, one chain after the other."""
    packed: tuple[Packed, ...]
    """Each rank's actions in the order in which it runs them, as flat arrays."""
    chains: int = 1
    """Directions in which micro-batches pass; stages of a later chain are copies of those of the first."""
    note: str | None = None
    """What a textbook formula says wrongly at this size, or how an order of the user's own was read, in
    words, or what else is worth knowing; None if nothing."""

    def __repr__(self) -> str:
        ways = f" in {self.chains} directions" if self.chains > 1 else ""
        held = f"{counted(self.stages, 'rank')} × {counted(self.chunks, 'chunk')}{ways}"
        passing = counted(self.microbatches, "micro-batch", "micro-batches")
        return f"Schedule({self.name}: {held}, {passing}, {counted(sum(map(len, self.packed)), 'action')})"

    @cached_property
    def orders(self) -> tuple[tuple[Action, ...], ...]:
        """Each rank's actions in the order in which it runs them."""
        return tuple(actions_of(order) for order in self.packed)

    def order(self, rank: int) -> tuple[Action, ...]:
        """Return one rank's actions in the order in which it runs them."""
        if not 0 <= rank < self.stages:
            raise ValueError(f"rank {rank} of {self.stages}; use 0 to {self.stages - 1}")
        return actions_of(self.packed[rank])

    @cached_property
    def splits_backward(self) -> bool:
        """Whether it has backwards in two parts, for inputs and for weights."""
        return any((unpack(order)[1] == I).any() for order in self.packed)

    @property
    def depth(self) -> int:
        """Stages that a micro-batch passes."""
        return len(self.placement) // self.chains

    @property
    def first_stages(self) -> tuple[int, ...]:
        """Where micro-batches enter, one a chain."""
        return tuple(range(0, len(self.placement), self.depth))

    @property
    def last_stages(self) -> tuple[int, ...]:
        """Where the loss is, one a chain."""
        return tuple(first + self.depth - 1 for first in self.first_stages)

    @property
    def loss_ranks(self) -> tuple[int, ...]:
        """Ranks that compute the loss, one a chain; rank 0 and not the last where stages form a V."""
        return tuple(self.placement[stage] for stage in self.last_stages)

    @property
    def placement_words(self) -> tuple[str, ...]:
        """What each rank holds, as in "rank 0 holds stages 0 and 7 and the loss"."""
        return placement_words(self.placement, self.chains)

    def model_stage(self, stage: int) -> int:
        """Tell which stage of the model a stage is, or is a copy of."""
        return stage % self.depth

    @property
    def warmup(self) -> tuple[int, ...]:
        """Per rank, the forwards before the one that is followed by the rank's first backward."""
        return tuple(_leading_forwards(order) - 1 for order in self.packed)

    def to_csv(self, path: str | Path | None = None) -> str:
        """Write the order as torch's compute-only CSV, one row a rank; to `path` too if given."""
        text = orders_as_csv(self.orders)
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def simulate(
        self,
        *,
        forward: Cost = 1.0,
        backward_input: Cost = 1.0,
        backward_weight: Cost = 1.0,
        backward: Cost | None = None,
        overlap: Cost | None = None,
        comm: Cost = 0.0,
        **options: Any,
    ) -> Simulation:
        """Time this order; the arguments are those of `playbook.program.simulate.simulate`.

        Parameters
        ----------
        forward, backward_input, backward_weight
            Cost of one chunk, in any one unit; or one cost for each stage.
        backward
            Cost of a fused backward; backward_input + backward_weight if not given.
        overlap
            Cost of a forward and a backward at the same time; one after the other if not given.
        comm
            Delay between a producer's end and the earliest start of its consumer on another rank, same unit.
        options
            `recompute`, `link`, `message_bytes`, `blocking_send`, `receive`, `queue`, `stragglers`, `beside`.
        """
        return simulate(
            self.packed,
            self.placement,
            forward=forward,
            backward_input=backward_input,
            backward_weight=backward_weight,
            backward=backward,
            overlap=overlap,
            comm=comm,
            chains=self.chains,
            **options,
        )


def _leading_forwards(order: Packed) -> int:
    _, kind, _ = unpack(order)
    others = (kind != F).nonzero()[0]
    return int(others[0]) if others.size else len(order)


def schedule(
    name: str | Path,
    stages: int | None = None,
    microbatches: int | None = None,
    chunks: int | None = None,
    framework: str | None = None,
) -> Schedule:
    """Make a schedule by name, or read one from a CSV file.

    Parameters
    ----------
    name
        A schedule of the folder, in any case, or a path ending in `.csv`.
    stages
        Pipeline ranks p, at least 1. A CSV says its own; if given too, they must agree.
    microbatches
        Micro-batches m of one step, at least 1. As above.
    chunks
        Stages of each rank, v; the schedule's own default if not given.
    framework
        Apply this framework's conditions too; without it only sizes that have no order are refused.

    Raises
    ------
    ValueError
        For an unknown name, a size that has no order, one that the framework refuses, or more than
        `MOST_ACTIONS`.
    """
    if str(name).lower().endswith(".csv"):
        return _from_csv(Path(name), {"stages": stages, "microbatches": microbatches, "chunks": chunks})
    plan = find_plan(str(name))
    p, m = whole_count("stages", stages), whole_count("microbatches", microbatches)
    v = whole_count("chunks", plan.default_chunks if chunks is None else chunks)
    check_size(p, m, v)
    refusal = plan.refuse(p, m, v)
    if refusal:
        raise ValueError(refusal)
    check_framework(plan, framework, p, m, v)
    return Schedule(
        name=plan.name,
        stages=p,
        microbatches=m,
        chunks=v,
        placement=plan.placement(p, v),
        packed=tuple(map(pack_order, plan.orders(p, m, v))),
        chains=plan.chains,
        note="; ".join(said for said in (plan.note(p, m, v), plan.remark(p, m, v)) if said) or None,
    )


def _from_csv(path: Path, given: dict[str, int | None]) -> Schedule:
    orders = read_orders(path)
    made = schedule_from_orders(orders, name=path.name)
    for what, value in given.items():
        found = getattr(made, what)
        if value is not None and value != found:
            raise ValueError(f"{what}={value} but {path} has {found}; leave {what} out, or give {found}")
    return made


def schedule_from_orders(orders: Orders, name: str = "own order") -> Schedule:
    """Make a schedule of each rank's actions, checked to be whole.

    Raises
    ------
    ValueError
        If a micro-batch misses a stage or direction, or runs twice.
    """
    if not orders:
        raise ValueError("the order has no rank; give one row a rank, as in 0F0,0F1,0B0,0B1")
    placement = placement_of(orders)
    microbatches = 1 + max(action.microbatch for order in orders for action in order)
    chains = chains_of(orders, len(placement))
    check_orders(orders, len(placement), microbatches, chains)
    return Schedule(
        name=name,
        stages=len(orders),
        microbatches=microbatches,
        chunks=chunks_of(placement, chains),
        chains=chains,
        placement=placement,
        packed=tuple(map(pack_order, orders)),
        note=two_ways(len(placement)) if chains == 2 else None,
    )
