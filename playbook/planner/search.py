"""`find_schedule`: an order for stages that are not equal, under a memory cap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from random import Random

from playbook.planner.bounds import lower_bound
from playbook.planner.found import FoundSchedule
from playbook.planner.known import Tried, known_orders, try_order
from playbook.planner.list_scheduling import fused, list_orders, rules
from playbook.planner.local_search import fuse_where_shorter, improve
from playbook.planner.placed import Orders, Placed, placements
from playbook.planner.setting import COPIES, Cost, Setting
from playbook.planner.timing import CLOSE, peaks, time_orders

VISITS = 1_500_000
"""Tasks timed in one local search: so many orders are tried as this is over the tasks of one."""

MOST_STEPS = 15_000
LISTED_TASKS = 30_000
"""Tasks laid by list scheduling on one placement: the number of rules tried is this over the order's size."""

STARTS = 3
"""Orders that local search starts from on one placement."""

Scored = tuple[float, Orders]


def find_schedule(
    stages: int,
    microbatches: int,
    *,
    chunks: int = 1,
    forward: Cost = 1.0,
    backward_input: Cost = 1.0,
    backward_weight: Cost = 1.0,
    backward: Cost | None = None,
    comm: Cost = 0.0,
    memory_cap: int | Sequence[int] | None = None,
    split: bool = True,
    copies: int = 2,
    effort: float = 1.0,
    seed: int = 0,
) -> FoundSchedule:
    """Search an order of a pipeline's actions for given costs and memory.

    Parameters
    ----------
    stages
        Pipeline ranks p.
    microbatches
        Micro-batches m of one step.
    chunks
        Stages of the model on each rank, v; with 2 they lie in a loop or in a V, whichever ends sooner.
    forward, backward_input, backward_weight
        Cost of one stage-chunk, in any one unit; or one for each of the p · v stages of the model.
    backward
        Cost of a fused backward; backward_input + backward_weight if not given.
    comm
        Delay between a producer's end and the earliest start of its consumer on another rank, same unit; or
        one for each border between stages s and s + 1.
    memory_cap
        Most stage-chunks alive on a rank, from the start of F to the end of W or of a fused B; one number, or
        one a rank; None for no cap.
    split
        Whether a backward may be run in two parts, for the input and for the weights.
    copies
        Copies of the model's stages that the ranks may hold together. With 2, bidirectional orders are tried
        too: they need twice the memory for parameters, which `memory_cap` does not count.
    effort
        Multiplies the number of orders tried.
    seed
        Of the search's choices; the same arguments give the same order.

    Returns
    -------
    FoundSchedule
        `.schedule`, `.simulation`, `.makespan`, `.lower_bound`, `.gap`, and `.table` with every schedule of
        the folder that has an order at this size. Never slower than the fastest of them under the same cap,
        and never with a larger peak than one of them that ends at the same time.

    Raises
    ------
    ValueError, TypeError
        If a number is out of range, or no order keeps within the cap; the text says the smallest that works.

    Notes
    -----
    List scheduling under some dozens of rules, and the known orders with split backwards, are the starts; the
    best of them are improved by shifting single actions. Nothing is proved of the result but its gap to the
    lower bound (`playbook.planner.bounds`). Simulated costs, not measured ones.

    Examples
    --------
    A slow last stage, room for three micro-batches on each rank.

    >>> found = find_schedule(3, 6, forward=[1, 1, 2], memory_cap=3, copies=1)
    >>> found.makespan, found.gap, max(found.simulation.peak_live)
    (26.0, 0.0, 3)
    """
    setting = Setting.of(
        stages=stages,
        microbatches=microbatches,
        chunks=chunks,
        forward=forward,
        backward_input=backward_input,
        backward_weight=backward_weight,
        backward=backward,
        comm=comm,
        memory_cap=memory_cap,
        split=split,
        copies=copies,
    )
    known, refused = known_orders(setting)
    places = placements(setting)
    bounds = [lower_bound(placed) for placed in places]
    tops = sorted({placed.chains for placed in places if placed.chains <= setting.copies})
    found = [
        _best_of(
            [(placed, bound) for placed, bound in zip(places, bounds, strict=True) if placed.chains == top],
            [one for one in known if one.feasible and one.copies == top],
            effort,
            Random(seed),
        )
        for top in tops
    ]
    return FoundSchedule(
        setting=setting,
        found=tuple(found),
        known=tuple(known),
        refused=refused,
        bounds=_bounds(places, bounds),
    )


def _bounds(places: Sequence[Placed], bounds: Sequence[float]) -> dict[int, float]:
    """Copies → least bound of the placements with at most so many."""
    return {
        copies: min(b for placed, b in zip(places, bounds, strict=True) if placed.chains <= copies)
        for copies in COPIES
    }


def _best_of(
    places: Sequence[tuple[Placed, float]], known: Sequence[Tried], effort: float, random: Random
) -> Tried:
    """Search the placements with equally many copies, and keep a known order that nothing beats."""
    best: tuple[float, Placed, Orders] | None = None
    for placed, bound in places:
        if best is not None and best[0] <= bound + CLOSE:
            continue
        makespan, orders = _search(placed, bound, known, effort, random)
        if best is None or makespan < best[0] - CLOSE:
            best = (makespan, placed, orders)
    assert best is not None, "every copy count has a placement"
    found = try_order(best[1].schedule(best[2]), best[1].setting)
    rival = min(known, key=lambda one: one.makespan, default=None)
    if rival is not None and rival.makespan < found.makespan - CLOSE:
        raise AssertionError(f"{rival.name} was a start of the search and is shorter than its end")
    return _smallest(found, known)


def _smallest(found: Tried, known: Sequence[Tried]) -> Tried:
    """Of the found order and the known ones that end with it, the one that holds least; it is named found."""
    ties = [one for one in known if one.makespan <= found.makespan + CLOSE]
    best = min((found, *ties), key=lambda one: one.peak)
    return found if best is found else replace(best, schedule=replace(best.schedule, name=found.name))


def _search(placed: Placed, bound: float, known: Sequence[Tried], effort: float, random: Random) -> Scored:
    """List, then improve from the best few that differ."""
    starts = _starts(placed, known, effort)
    best = starts[0]
    size = sum(map(len, best[1]))
    steps = int(effort * min(MOST_STEPS, VISITS / size))
    for _, orders in starts[:STARTS]:
        if best[0] <= bound + CLOSE:
            break
        tried = improve(placed, orders, steps, random, bound)
        best = min(best, tried, key=lambda one: one[0])
    if placed.setting.split:
        shorter = fuse_where_shorter(placed, best[1])
        best = min(best, *_scored(placed, [shorter]), key=lambda one: one[0])
    return best


def _starts(placed: Placed, known: Sequence[Tried], effort: float) -> list[Scored]:
    """Orders that run within the cap, the shortest first, one for each makespan."""
    setting = placed.setting
    size = 3 * sum(placed.counts)
    count = max(6, int(LISTED_TASKS * effort / size))
    listed = [list_orders(placed, rule) for rule in islice(rules(placed), count)]
    orders = listed if setting.split else []
    if not setting.split or any(_fusing_saves(setting)):
        orders = orders + [fused(placed, one) for one in listed]
    for one in known:
        if one.schedule.placement == placed.placement and one.copies == placed.chains:
            orders.append(placed.tasks(one.schedule.packed, split=False))
            if setting.split:
                orders.append(placed.tasks(one.schedule.packed, split=True))
    scored = sorted(_scored(placed, orders), key=lambda one: one[0])
    return [one for place, one in enumerate(scored) if place == 0 or one[0] > scored[place - 1][0] + CLOSE]


def _fusing_saves(setting: Setting) -> list[bool]:
    parts = zip(setting.backward, setting.backward_input, setting.backward_weight, strict=True)
    return [fused < i + w for fused, i, w in parts]


def _scored(placed: Placed, orders: Sequence[Orders]) -> list[Scored]:
    """Makespan of each order that runs and keeps within the cap."""
    cap, found = placed.setting.cap, []
    for one in orders:
        timed = time_orders(placed, one)
        within = cap is None or all(p <= c for p, c in zip(peaks(placed, one), cap, strict=True))
        if timed is not None and within:
            found.append((timed.makespan, one))
    return found
