"""A setting on a placement, as flat lists: the form in which orders are timed thousands of times.

Micro-batches are equal, so nothing is lost if each stage takes them in order in every direction: sort the
starts of one kind on one stage and give the k-th to micro-batch k. The k-th start of a consumer is never
before the k-th end of its producer, and what is alive when does not change. An order is therefore a word of
letters (stage, kind); the micro-batch follows from counting.

A task is one action: number ((slot · 4) + kind) · n + k, with k counted in the slot's chain and n the most
micro-batches of a chain (the first of two chains has one more if they are odd). Its result, which one task
elsewhere waits for, has the same number, and that of B for an I.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from playbook.planner.setting import Setting
from playbook.program.schedule import Schedule
from playbook.schedules.packed import B, F, I, Packed, W, pack, unpack
from playbook.schedules.placement import loop, v_shape

Order = list[int]
"""Tasks of a rank in the order in which it runs them."""
Orders = list[Order]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Placed:
    """A setting with the rank of every slot (stage of a chain)."""

    setting: Setting
    word: str
    """How stages lie on ranks, in words."""
    placement: tuple[int, ...]
    chains: int
    trips: int
    """Most micro-batches that pass a slot, n."""
    counts: list[int]
    """Micro-batches that pass each slot."""
    duration: list[float]
    """Cost of each task."""
    needs: list[int]
    """Result that each task waits for; −1 where its own rank's order already sees to it."""
    gives: list[int]
    """Number of each task's result."""
    delay: list[float]
    """Time between that result and the task's earliest start."""
    change: list[int]
    """What each task adds to the chunks alive on its rank."""

    @classmethod
    def of(cls, setting: Setting, word: str, placement: tuple[int, ...], chains: int = 1) -> Placed:
        """Lay out the lists."""
        depth, trips = setting.depth, -(-setting.microbatches // chains)
        costs = (setting.forward, setting.backward, setting.backward_input, setting.backward_weight)
        duration, needs, gives, delay, change = [], [], [], [], []
        for slot in range(len(placement)):
            stage = slot % depth
            for kind in (F, B, I, W):
                other = _producer(slot, stage, kind, depth)
                wait = 0.0
                if other is not None and placement[other] != placement[slot]:
                    wait = setting.comm[min(stage, other % depth)]
                first = (slot * 4 + (B if kind == I else kind)) * trips
                source = None if other is None else (other * 4 + (F if kind == F else B)) * trips
                duration += [costs[kind][stage]] * trips
                gives += range(first, first + trips)
                needs += [-1] * trips if source is None else range(source, source + trips)
                delay += [wait] * trips
                change += [{F: 1, B: -1, I: 0, W: -1}[kind]] * trips
        return cls(
            setting=setting,
            word=word,
            placement=placement,
            chains=chains,
            trips=trips,
            counts=[
                trips if slot < depth else setting.microbatches - trips for slot in range(len(placement))
            ],
            duration=duration,
            needs=needs,
            gives=gives,
            delay=delay,
            change=change,
        )

    def slots_of(self, rank: int) -> tuple[int, ...]:
        """Slots that a rank holds."""
        return tuple(slot for slot, owner in enumerate(self.placement) if owner == rank)

    def tasks(self, packed: Sequence[Packed], split: bool) -> Orders:
        """Tasks of an order, each slot taking its micro-batches in turn; fused ones split if asked for."""
        return [self._tasks_of_rank(order, split) for order in packed]

    def _tasks_of_rank(self, order: Packed, split: bool) -> Order:
        count: dict[int, int] = {}
        unweighted: dict[int, list[int]] = {}
        tasks: Order = []
        slots, kinds, _ = unpack(order)
        for slot, kind in zip(slots.tolist(), kinds.tolist(), strict=True):
            base = slot * 4 * self.trips
            if kind == W:
                tasks.append(base + W * self.trips + unweighted[slot].pop(0))
                continue
            key = slot * 2 + (kind != F)
            k = count[key] = count.get(key, -1) + 1
            if kind == B and split:
                tasks += (base + I * self.trips + k, base + W * self.trips + k)
                continue
            tasks.append(base + kind * self.trips + k)
            if kind == I:
                unweighted.setdefault(slot, []).append(k)
        return tasks

    def schedule(self, orders: Orders, name: str = "found") -> Schedule:
        """Make a schedule like any other of each rank's tasks."""
        packed = []
        for order in orders:
            letter, k = np.divmod(np.array(order, dtype=np.int64), self.trips)
            slot, kind = letter >> 2, letter & 3
            chain = slot // self.setting.depth
            packed.append(pack(slot, 0, chain * self.trips + k) | kind)
        return Schedule(
            name=name,
            stages=self.setting.ranks,
            microbatches=self.setting.microbatches,
            chunks=self.setting.chunks,
            chains=self.chains,
            placement=self.placement,
            packed=tuple(packed),
        )


def _producer(slot: int, stage: int, kind: int, depth: int) -> int | None:
    """Slot whose result an action waits for, if it is another one."""
    if kind == W:
        return None
    if kind == F:
        return slot - 1 if stage else None
    return slot + 1 if stage < depth - 1 else None


def placements(setting: Setting) -> list[Placed]:
    """Every placement that a schedule of the folder uses for these stages, whatever copies it needs."""
    p, v, m = setting.ranks, setting.chunks, setting.microbatches
    found = [Placed.of(setting, "loop", loop(p, v))]
    if v == 2 and p > 1:
        found.append(Placed.of(setting, "V", v_shape(p)))
    if v == 1 and min(p, m) > 1:
        both = (*range(p), *reversed(range(p)))
        found.append(Placed.of(setting, "bidirectional", both, chains=2))
    return found
