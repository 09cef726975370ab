"""Time an order of tasks, and say which tasks its end hangs on.

The event engine's rules for one wait a task, over lists that are made once for all orders; a test holds the
two together.
"""

from __future__ import annotations

from typing import NamedTuple

from playbook.planner.placed import Orders, Placed

CLOSE = 1e-9
"""Times closer than this count as equal: sums of costs in different orders differ by rounding."""


class Timed(NamedTuple):
    """When an order's results are there."""

    ends: list[float]
    """End of each task by the number of its result; −1 for those that no task gives."""
    last: list[float]
    """End of each rank's last task."""

    @property
    def makespan(self) -> float:
        """End of the last task of all."""
        return max(self.last)


def time_orders(placed: Placed, orders: Orders) -> Timed | None:
    """Run every rank as far as it goes, again when what it waits for is there; None if they lock."""
    duration, needs, gives, delay = placed.duration, placed.needs, placed.gives, placed.delay
    end = [-1.0] * len(duration)
    free = [0.0] * len(orders)
    heads = [0] * len(orders)
    sleeper: dict[int, int] = {}
    awake = list(range(len(orders)))
    done = 0
    while awake:
        rank = awake.pop()
        now, place, order = free[rank], heads[rank], orders[rank]
        last = len(order)
        while place < last:
            task = order[place]
            need = needs[task]
            if need >= 0:
                ready = end[need]
                if ready < 0.0:
                    sleeper[need] = rank
                    break
                ready += delay[task]
                if ready > now:
                    now = ready
            now += duration[task]
            given = gives[task]
            end[given] = now
            place += 1
            if given in sleeper:
                awake.append(sleeper.pop(given))
        done += place - heads[rank]
        heads[rank], free[rank] = place, now
    return Timed(end, free) if done == sum(map(len, orders)) else None


def critical_path(placed: Placed, orders: Orders, timed: Timed) -> list[tuple[int, int]]:
    """(rank, place) of the tasks of one longest path, from the last back to the first."""
    place_of = {
        placed.gives[task]: (rank, place)
        for rank, order in enumerate(orders)
        for place, task in enumerate(order)
    }
    rank = max(range(len(orders)), key=timed.last.__getitem__)
    place = len(orders[rank]) - 1
    path = []
    while place >= 0:
        path.append((rank, place))
        task = orders[rank][place]
        start = timed.ends[placed.gives[task]] - placed.duration[task]
        before = timed.ends[placed.gives[orders[rank][place - 1]]] if place else 0.0
        if start > before + CLOSE:
            rank, place = place_of[placed.needs[task]]
        else:
            place -= 1
    return path


def peaks(placed: Placed, orders: Orders) -> list[int]:
    """Most chunks alive on each rank."""
    return [peak_of(placed, order) for order in orders]


def peak_of(placed: Placed, order: list[int]) -> int:
    """Most chunks alive on a rank that runs this order."""
    change, alive, most = placed.change, 0, 0
    for task in order:
        alive += change[task]
        if alive > most:
            most = alive
    return most
