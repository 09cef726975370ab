"""Throughput against memory: every schedule as one point, and the few that no other one beats in both."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from playbook.pictures.pipeline_orders import TimedOrder, title_of
from playbook.pictures.words import in_words
from playbook.schedules import plans
from playbook.units import counted, percent

MOST_ACTIONS = 40_000
"""Actions of one schedule beyond which twelve of them are no matter of a slider any more."""
EQUAL = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """All schedules at one setting: those that have an order, and why the others have none."""

    orders: tuple[TimedOrder, ...]
    refused: Mapping[str, str]

    @property
    def front(self) -> list[TimedOrder]:
        """Schedules that no other one beats in both, by memory.

        Of equal ones the first stands for all.
        """
        found: list[TimedOrder] = []
        for one in sorted(self.orders, key=lambda one: (max(one.peaks), -one.throughput)):
            if not found or one.throughput > found[-1].throughput + EQUAL:
                found.append(one)
        return found


def field_of(
    names: Sequence[str], stages: int, microbatches: int, chunks: int, timed: Callable[[str], TimedOrder]
) -> Field:
    """Time every schedule of the folder, and the others that are named.

    Parameters
    ----------
    names
        Orders beside those of the folder.
    stages, microbatches, chunks
        Size, to refuse what would take seconds.
    timed
        Makes one of them; a ValueError of it is the reason of a refusal.

    Raises
    ------
    ValueError
        If there are too many actions for a picture that follows a slider.
    """
    actions = 3 * stages * microbatches * max(2, chunks)
    if actions > MOST_ACTIONS:
        most = max(1, MOST_ACTIONS // (3 * stages * max(2, chunks)))
        raise ValueError(
            f"stages={stages} and microbatches={microbatches} are up to {actions} actions for each of twelve "
            f"schedules; use microbatches={most} or fewer here"
        )
    orders, refused = [], {}
    for name in [*plans(), *(name for name in names if name not in plans())]:
        try:
            orders.append(timed(name))
        except ValueError as reason:
            refused[name] = str(reason)
    return Field(orders=tuple(orders), refused=refused)


def scatter_picture(
    field: Field, shown: Sequence[str], scale: float, ran: Mapping[str, float | None] | None = None
) -> dict[str, Any]:
    """Points of all schedules, in the view's units of memory.

    Parameters
    ----------
    field
        What `field_of` made.
    shown
        Schedules that are chosen.
    scale
        The view's unit of memory, in that of the peaks.
    ran
        By schedule, the idle share of its makespan on real ranks, where it ran.
    """
    front, idle = field.front, ran or {}
    points = [
        {
            "name": one.order.name,
            "title": one.title,
            "x": max(one.peaks) / scale,
            "y": one.throughput,
            "words": f"{one.title}: {percent(one.throughput)} of the step is work, "
            f"{one.held(max(one.peaks))} on rank {one.worst}, the worst",
            "front": one in front,
            "shown": one.order.name in shown,
            **({"ran": 1 - share} if (share := idle.get(one.order.name)) is not None else {}),
        }
        for one in field.orders
    ]
    refused = [{"title": title_of(name), "reason": reason} for name, reason in field.refused.items()]
    return {"points": points, "front": [one.order.name for one in front], "refused": refused}


def scatter_headline(field: Field, cap: float) -> list[str]:
    """Which schedules are worth a choice, and the best under the limit if there is one."""
    front, count = field.front, len(field.orders)
    least, best = front[0], front[-1]
    tied = [one for one in field.orders if _ties(one, best)]
    if len(front) == 1 and len(tied) > 1:
        who = "All" if len(tied) == count else f"{in_words(len(tied)).capitalize()} of"
        finding = f"{who} {in_words(count)} schedules tie for the best: {_said(best)}."
    elif len(front) == 1:
        finding = f"{best.title} beats all others: {_said(best)}."
    else:
        finding = (
            f"{in_words(len(front)).capitalize()} of {in_words(count)} schedules are worth a choice: "
            f"from {least.title}, {_said(least)}, to {best.title}, {_said(best)}."
        )
    if not cap and len(tied) == count:
        return [finding, "The order makes no difference here."]
    if not cap:
        return [finding, "Every other one works no more and holds no less than one of these."]
    fitting = [one for one in front if max(one.peaks) <= cap]
    if not fitting:
        return [f"No schedule fits in {least.held(cap)}:", f"{least.title} needs least, {_held(least)}."]
    fastest = fitting[-1]
    others = sum(_ties(one, fastest) for one in field.orders) - 1
    who = f"the best is {fastest.title}"
    if others:
        who = f"{fastest.title} and {counted(others, 'other')} are best"
    return [f"Within {fastest.held(cap)} {who}: {_said(fastest)}.", finding]


def _ties(one: TimedOrder, other: TimedOrder) -> bool:
    """Whether both work as much and hold as much."""
    return abs(one.throughput - other.throughput) <= EQUAL and max(one.peaks) == max(other.peaks)


def _held(one: TimedOrder) -> str:
    return one.held(max(one.peaks))


def _said(one: TimedOrder) -> str:
    return f"{percent(one.throughput)} at work in {_held(one)}"
