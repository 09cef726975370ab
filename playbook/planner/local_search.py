"""Local search: shift one task on its rank, keep what is better, and now and then what is a little worse.

Mostly a task of a longest path is shifted: as long as these stay as they are, so does the order's end. Some
shifts are of any task, since a chunk must be freed elsewhere before a rank has room. The method is simulated
annealing of job shops (van Laarhoven, Aarts, Lenstra, Job Shop Scheduling by Simulated Annealing, 1992), with
a number of steps and not a clock, so that the same search finds the same order everywhere.
"""

from __future__ import annotations

import math
from random import Random
from typing import NamedTuple

from playbook.planner.placed import Order, Orders, Placed
from playbook.planner.timing import CLOSE, Timed, critical_path, peak_of, time_orders
from playbook.schedules.packed import B, F, I, W

HEAT = 0.6
"""Loss that is accepted with probability 1/e at the start, in mean costs of a task; it falls to 0. Of 0.05 to
1.0 the hottest that still ended in the best orders of uneven pipelines with 3 to 8 ranks."""

ELSEWHERE = 0.2
"""Part of the shifts that take a task off the path."""


class Shift(NamedTuple):
    """Move the task at `place` of a rank's order to `target`."""

    rank: int
    place: int
    target: int


def improve(placed: Placed, orders: Orders, steps: int, random: Random, goal: float) -> tuple[float, Orders]:
    """Search from an order.

    Parameters
    ----------
    placed
        What is ordered; its cap holds for every order tried.
    orders
        Where to start; it must run.
    steps
        Shifts to try.
    random
        Source of choices.
    goal
        Stop at this makespan: nothing can be shorter.

    Returns
    -------
    tuple
        Least makespan and its orders.
    """
    timed = _timed(placed, orders)
    best = (timed.makespan, orders)
    path = critical_path(placed, orders, timed)
    heat = HEAT * sum(map(sum, _durations(placed, orders))) / sum(map(len, orders))
    for step in range(steps):
        if best[0] <= goal + CLOSE:
            break
        shift = _draw(placed, orders, path, random)
        tried = _shifted(placed, orders, shift) if shift else None
        found = time_orders(placed, tried) if tried else None
        if tried is None or found is None:
            continue
        allowed = -heat * (1 - step / steps) * math.log(1.0 - random.random())
        if found.makespan <= timed.makespan + allowed:
            orders, timed = tried, found
            path = critical_path(placed, orders, timed)
            if timed.makespan < best[0] - CLOSE:
                best = (timed.makespan, orders)
    return best


def fuse_where_shorter(placed: Placed, orders: Orders) -> Orders:
    """Fuse I and W of one micro-batch where a fused backward is cheaper and the end is then no later."""
    setting, trips = placed.setting, placed.trips
    saves = [
        fused < i + w
        for fused, i, w in zip(setting.backward, setting.backward_input, setting.backward_weight, strict=True)
    ]
    best = _timed(placed, orders).makespan
    for rank, order in enumerate(orders):
        for task in [task for task in order if task // trips & 3 == I]:
            slot, k = task // trips >> 2, task % trips
            if not saves[slot % setting.depth]:
                continue
            weight, both = (slot * 4 + W) * trips + k, (slot * 4 + B) * trips + k
            one = [both if other == task else other for other in orders[rank] if other != weight]
            tried = [*orders[:rank], one, *orders[rank + 1 :]]
            found = time_orders(placed, tried)
            if found and found.makespan <= best + CLOSE:
                best, orders = found.makespan, tried
    return orders


def _durations(placed: Placed, orders: Orders) -> list[list[float]]:
    return [[placed.duration[task] for task in order] for order in orders]


def _timed(placed: Placed, orders: Orders) -> Timed:
    timed = time_orders(placed, orders)
    if timed is None:
        raise ValueError("the order to start from locks; start from one that runs")
    return timed


def _draw(placed: Placed, orders: Orders, path: list[tuple[int, int]], random: Random) -> Shift | None:
    """Draw a task and where on its rank to put it: mostly near, sometimes far."""
    if random.random() < ELSEWHERE:
        rank = int(random.random() * len(orders))
        place = int(random.random() * len(orders[rank]))
    else:
        rank, place = path[int(random.random() * len(path))]
    low, high = _freedom(placed, orders[rank], place)
    earlier = random.random() < 0.5
    room = place - low if earlier else high - place
    if room == 0:
        return None
    distance = _distance(room, random)
    return Shift(rank, place, place - distance if earlier else place + distance)


def _distance(room: int, random: Random) -> int:
    if random.random() < 0.5:
        return 1 if room < 2 or random.random() < 0.6 else 2
    return 1 + int(random.random() * room)


def _freedom(placed: Placed, order: Order, place: int) -> tuple[int, int]:
    """First and last place that a task may take: behind what it needs here, before what needs it.

    A task passes none of its own letter, so that each stage takes micro-batches in turn.
    """
    trips = placed.trips
    letter, k = divmod(order[place], trips)
    slot, kind = letter >> 2, letter & 3
    same = {letter} if kind in (F, W) else {slot * 4 + B, slot * 4 + I}

    def bars(task: int) -> bool:
        other, count = divmod(task, trips)
        return other in same or (other >> 2 == slot and count == k)

    low, high = place, place
    while low > 0 and not bars(order[low - 1]):
        low -= 1
    while high < len(order) - 1 and not bars(order[high + 1]):
        high += 1
    return low, high


def _shifted(placed: Placed, orders: Orders, shift: Shift) -> Orders | None:
    """Orders after the shift, or None if the rank then holds too much."""
    rank, place, target = shift
    order = orders[rank].copy()
    order.insert(target, order.pop(place))
    cap = placed.setting.cap
    if cap is not None and placed.change[order[target]] and peak_of(placed, order) > cap[rank]:
        return None
    return [*orders[:rank], order, *orders[rank + 1 :]]
