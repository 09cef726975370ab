"""What more micro-batches buy: the idle share of the step against m, with the rule of thumb m ≥ 4p marked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from playbook.pictures.pipeline_forward import plain_grid
from playbook.pictures.pipeline_orders import TimedOrder, order_of, timed_order
from playbook.pictures.pipeline_setting import Setting
from playbook.schedules import plans
from playbook.schedules.plan import Plan
from playbook.units import THIN

MARKS = (1, 2, 4, 8)
"""Micro-batches marked, in multiples of the ranks."""

MOST_ACTIONS = 3000
"""Actions that may be simulated for one point; beyond, only a formula gives it."""


def gain_picture(orders: Sequence[TimedOrder], setting: Setting) -> dict[str, Any]:
    """Idle share of each schedule against the micro-batches, in per cent of the makespan.

    Empty where the first schedule has no such curve: an order of the user's, seconds of a model, one rank.
    """
    known = [one for one in orders if one.order.name in plans() and one.costs is not None]
    if not known or setting.stages < 2:
        return {}
    drawn = _merged([line for line in (_line(one, setting) for one in known) if len(line["points"]) > 1])
    if not drawn:
        return {}
    return {
        "lines": drawn,
        "marks": [[setting.stages * mark, "p" if mark == 1 else f"{mark}p"] for mark in MARKS],
        "now": setting.microbatches,
        "words": _words(drawn[0], setting.stages),
    }


def _line(one: TimedOrder, setting: Setting) -> dict[str, Any]:
    p, most = setting.stages, max(MARKS) * setting.stages
    multiples = {p * k for k in (1, 2, 3, 4, 5, 6, 8)} | {p * 2**k for k in range(4, 8)}
    wanted = sorted(m for m in multiples if m <= max(most, setting.microbatches))
    points = [(m, idle_share(one, setting, m)) for m in wanted if m != setting.microbatches]
    points.append((setting.microbatches, one.timed.idle_over_makespan))
    shown = [[m, round(100 * share, 3)] for m, share in sorted(points) if share is not None]
    return {"title": "Forward pass" if one.forward else one.title, "points": shown}


def idle_share(one: TimedOrder, setting: Setting, microbatches: int) -> float | None:
    """Idle share of the makespan with other micro-batches: by the formula where it holds, else simulated.

    None where neither can say: there is no such order, or it is too long to simulate beside a slider.
    """
    plan, order = plans()[one.order.name], one.order
    if one.forward:
        idle = order.stages - 1
        return idle / (idle + microbatches) if plain_grid(one, setting) else None
    if plan.refuse(order.stages, microbatches, order.chunks):
        return None
    assert one.costs is not None
    if (
        setting.plain
        and not plan.cost_note(one.costs)
        and not plan.note(order.stages, microbatches, order.chunks)
    ):
        return _by_formula(one, plan, setting, microbatches)
    if order.stages * microbatches * order.chunks * 2 > MOST_ACTIONS:
        return None
    return _simulated(order.name, replace(setting, microbatches=microbatches), order.chunks)


def _by_formula(one: TimedOrder, plan: Plan, setting: Setting, microbatches: int) -> float:
    order = one.order
    idle = plan.idle(order.stages, microbatches, order.chunks, one.costs)  # type: ignore[arg-type]  # checked
    work = one.timed.ideal / order.microbatches * microbatches
    return idle / (idle + work)


@lru_cache(maxsize=512)
def _simulated(name: str, setting: Setting, chunks: int) -> float:
    order = order_of(name, setting.stages, setting.microbatches, chunks)
    return timed_order(order, setting, chunks).timed.idle_over_makespan


def _merged(lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Lines that lie on each other become one with both names."""
    found: dict[tuple[tuple[float, ...], ...], dict[str, Any]] = {}
    for line in lines:
        key = tuple(map(tuple, line["points"]))
        if key in found:
            found[key]["title"] += f", {line['title']}"
        else:
            found[key] = dict(line)
    return list(found.values())


def _words(line: dict[str, Any], ranks: int) -> str:
    share = dict(map(tuple, line["points"]))
    low, high, twice = ranks, 4 * ranks, 8 * ranks
    if low not in share or high not in share:
        return ""
    words = (
        f"{line['title']}: from m = {low} to {high} (4p) the idle share falls from {share[low]:.0f}{THIN}% "
        f"to {share[high]:.0f}{THIN}%"
    )
    if twice not in share:
        return f"{words}."
    more = round(share[high] - share[twice])
    return f"{words}; doubling again buys {more} point{'' if more == 1 else 's'} more."
