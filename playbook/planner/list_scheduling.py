"""List scheduling: whenever a rank is free it takes one of its tasks that are ready, by a rule with knobs.

Under a cap a rank takes a forward only if its micro-batches can then still end one after the other, oldest
first, each with the room that those before it leave (Dijkstra's banker). So no order locks: the oldest of all
has room on every rank.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product

from playbook.planner.placed import Order, Orders, Placed
from playbook.schedules.packed import B, F, I, W


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """The knobs."""

    lead: float
    """Micro-batches a rank takes in before backwards go first, over those that fill its round trip."""
    fit: float
    """Part of W that must fit into a gap before the next known arrival; 0 fills every gap, inf none."""
    eager_weights: bool
    """Run W right after its I."""
    deep: bool
    """Among several chunks, take the one nearest to its end; else the one that is ready first."""


def rules(placed: Placed) -> Iterator[Rule]:
    """Rules worth trying, the most different ones first."""
    several = placed.setting.chunks > 1
    for eager, deep in product((False, True), (True, False) if several else (True,)):
        for lead in (1.0, math.inf, 0.75, 1.5, 1.25, 0.5, 2.0):
            for fit in (0.0,) if eager else (0.0, 0.6, 1.0):
                yield Rule(lead=lead, fit=fit, eager_weights=eager, deep=deep)


def list_orders(placed: Placed, rule: Rule) -> Orders:
    """Make an order of split backwards by the rule."""
    return _Floor(placed, rule).run()


@dataclass(slots=True, eq=False)
class _Floor:
    """The ranks at work; what is in progress changes here and nowhere else."""

    placed: Placed
    rule: Rule
    end: list[float] = field(init=False)
    free: list[float] = field(init=False)
    alive: list[int] = field(init=False)
    orders: Orders = field(init=False)
    taken: list[list[int]] = field(init=False)
    """Slot → forwards, (unused), backwards for the input, backwards for the weights begun."""
    slots: list[tuple[int, ...]] = field(init=False)
    leads: list[float] = field(init=False)

    def __post_init__(self) -> None:
        ranks = self.placed.setting.ranks
        self.end = [-1.0] * len(self.placed.duration)
        self.free, self.alive = [0.0] * ranks, [0] * ranks
        self.orders = [[] for _ in range(ranks)]
        self.taken = [[0, 0, 0, 0] for _ in self.placed.placement]
        self.slots = [self.placed.slots_of(rank) for rank in range(ranks)]
        self.leads = [_lead(self.placed, self.slots[rank], self.rule.lead) for rank in range(ranks)]

    def run(self) -> Orders:
        """Let the rank that can start first take a task, until there is none."""
        next_one = [self._choose(rank) for rank in range(len(self.free))]
        wanted = 3 * sum(self.placed.counts)
        for _ in range(wanted):
            rank = min(range(len(next_one)), key=lambda r: next_one[r][0])
            start, task = next_one[rank]
            touched = self._take(rank, start, task)
            for other in {rank, touched}:
                next_one[other] = self._choose(other)
        return self.orders

    def _take(self, rank: int, start: float, task: int) -> int:
        """Run a task; return the rank that may wait for its result."""
        placed, trips = self.placed, self.placed.trips
        slot, kind = task // trips >> 2, task // trips & 3
        self.taken[slot][kind] += 1
        self.free[rank] = start + placed.duration[task]
        self.end[placed.gives[task]] = self.free[rank]
        self.alive[rank] += placed.change[task]
        self.orders[rank].append(task)
        if kind == W:
            return rank
        consumer = slot + (1 if kind == F else -1)
        inside = 0 <= consumer < len(placed.placement)
        return placed.placement[consumer] if inside else rank

    def _choose(self, rank: int) -> tuple[float, int]:
        """Earliest start of this rank's next task, and the task; inf if nothing is known to come."""
        free = self.free[rank]
        ready = self._arrivals(rank)
        weights = self._weights(rank)
        if weights and (self.rule.eager_weights or not ready):
            return free, weights[0]
        if not ready:
            return math.inf, -1
        first = max(free, min(ready)[0])
        if weights and first - free >= self.rule.fit * self.placed.duration[weights[0]] and first > free:
            return free, weights[0]
        now = [one for one in ready if one[0] <= first]
        return first, min(now, key=lambda one: self._rank_of(rank, one))[1]

    def _rank_of(self, rank: int, one: tuple[float, int]) -> tuple[float, float, float]:
        """Sort key: backwards first once enough micro-batches are in."""
        arrival, task = one
        slot, kind = task // self.placed.trips >> 2, task // self.placed.trips & 3
        stage = slot % self.placed.setting.depth
        forward_first = self.alive[rank] < self.leads[rank]
        to_go = stage if kind == I else -stage
        first, second = (to_go, arrival) if self.rule.deep else (arrival, to_go)
        return (kind == F) != forward_first, first, second

    def _arrivals(self, rank: int) -> list[tuple[float, int]]:
        """Forwards and backwards of this rank whose input is there or under way."""
        placed, trips, found = self.placed, self.placed.trips, []
        for slot in self.slots[rank]:
            taken = self.taken[slot]
            for kind in (F, I):
                k = taken[kind]
                if k >= placed.counts[slot] or (kind == I and k >= taken[F]):
                    continue
                task = (slot * 4 + kind) * trips + k
                need = placed.needs[task]
                arrival = 0.0 if need < 0 else self.end[need] + placed.delay[task]
                if (need < 0 or self.end[need] >= 0.0) and (kind == I or self._has_room(rank, slot)):
                    found.append((arrival, task))
        return found

    def _weights(self, rank: int) -> list[int]:
        """Backwards for the weights that may run."""
        trips, taken = self.placed.trips, self.taken
        return [
            (slot * 4 + W) * trips + taken[slot][W]
            for slot in self.slots[rank]
            if taken[slot][W] < taken[slot][I]
        ]

    def _has_room(self, rank: int, slot: int) -> bool:
        """Tell whether after a forward all that are begun here can still end, one after the other."""
        cap = self.placed.setting.cap
        if cap is None:
            return True
        depth, free = self.placed.setting.depth, cap[rank] - self.alive[rank] - 1
        for first in range(0, len(self.taken), depth):
            chain = [s for s in self.slots[rank] if first <= s < first + depth]
            begun = [self.taken[s][F] + (s == slot) for s in chain]
            done = [self.taken[s][W] for s in chain]
            for one in range(min(done), min(max(begun) + 1, self.placed.counts[first])):
                if sum(count <= one for count in begun) > free:
                    return False
                free += sum(w <= one < f for w, f in zip(done, begun, strict=True))
        return True


def _lead(placed: Placed, slots: tuple[int, ...], share: float) -> float:
    """Chunks to take in on a rank so that it never waits for the first backward, times a share.

    A slot's round trip over the slowest rank's time for one micro-batch is the number of micro-batches that
    are under way meanwhile.
    """
    if math.isinf(share):
        return share
    setting = placed.setting
    parts = (setting.forward, setting.backward_input, setting.backward_weight)
    cost = [sum(part[slot % setting.depth] for part in parts) for slot in range(len(placed.placement))]
    work = [
        sum(cost[slot] for slot in placed.slots_of(rank)) / placed.chains for rank in range(setting.ranks)
    ]
    through = [f + i for f, i in zip(setting.forward, setting.backward_input, strict=True)]
    trips = 0.0
    for slot in slots:
        stage = slot % setting.depth
        trips += (sum(through[stage:]) + 2 * sum(setting.comm[stage:])) / placed.chains
    return max(1.0, math.ceil(share * trips / max(*work, 1e-300)))


def fused(placed: Placed, orders: Orders) -> Orders:
    """Run each W right after its I, as one B."""
    return [_fused_order(placed, order) for order in orders]


def _fused_order(placed: Placed, order: Order) -> Order:
    trips = placed.trips
    kinds = [task // trips & 3 for task in order]
    step = (I - B) * trips
    return [task - step if kind == I else task for task, kind in zip(order, kinds, strict=True) if kind != W]
