"""What a picture of pipeline schedules says: the finding in one sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from playbook.pictures.pipeline_orders import TimedOrder
from playbook.pictures.words import EQUAL, difference, in_words, short
from playbook.units import percent

if TYPE_CHECKING:
    from playbook.pictures.pipeline_run import MeasuredOrder


def headline(
    orders: Sequence[TimedOrder], measured: Mapping[str, MeasuredOrder], cap: float = 0.0
) -> list[str]:
    """The finding, and its second half.

    Parameters
    ----------
    orders
        Schedules in the order shown.
    measured
        Runs by schedule; only those that are complete are compared with the prediction.
    cap
        Most that a rank may hold, in the unit of the peaks; 0 for no limit.
    """
    finding, rest = _alone(orders[0]) if len(orders) == 1 else _together(orders)
    runs = ((one, measured[one.order.name].makespan) for one in orders if one.order.name in measured)
    ran = [(one, end) for one, end in runs if end is not None]
    if ran:
        return [finding, _on_ranks(ran)]
    over = [one for one in orders if cap and max(one.peaks) > cap]
    if over:
        return [over_words(orders, over, cap), finding]
    return [finding, rest]


def _on_ranks(ran: Sequence[tuple[TimedOrder, float]]) -> str:
    """Measured ends, and how far they lie from the predicted ones."""
    ends = " → ".join(one.bare(end) for one, end in ran)
    unit = "" if ran[0][0].model is not None else " units"
    gaps = ", ".join(difference(end, one.timed.makespan) for one, end in ran)
    return f"On real ranks: {ends}{unit}, {gaps}."


def over_words(orders: Sequence[TimedOrder], over: Sequence[TimedOrder], cap: float) -> str:
    """Which schedules do not fit under the cap, and by how much the worst misses it."""
    worst = max(over, key=lambda one: max(one.peaks))
    limit, most = worst.held(cap), worst.held(max(worst.peaks))
    if len(over) == 1:
        return f"{worst.title} does not fit in {limit}: rank {worst.worst} needs {most}."
    who = f"{in_words(len(over)).capitalize()} of {in_words(len(orders))} do not fit"
    if len(over) == len(orders):
        who = "Neither fits" if len(orders) == 2 else f"None of the {in_words(len(orders))} fits"
    return f"{who} in {limit}: rank {worst.worst} of {worst.title} needs {most}."


def _alone(one: TimedOrder) -> tuple[str, str]:
    finding = f"{one.title} ends at {one.long(one.timed.makespan)} and idles {_idle(one)} of them."
    if one.model is not None:
        finding = f"A step of {one.title} takes {one.long(one.timed.makespan)} and idles {_idle(one)} of it."
        return finding, f"Rank {one.worst} is the worst: {one.held(max(one.peaks))}."
    return finding, f"Rank {one.worst} holds {one.holds(max(one.peaks))} at its peak."


def _together(orders: Sequence[TimedOrder]) -> tuple[str, str]:
    ends = [one.timed.makespan for one in orders]
    peaks = [max(one.peaks) for one in orders]
    if max(ends) - min(ends) <= EQUAL * max(ends):
        return _same_end(orders, peaks)
    arrow = " → ".join(one.bare(end) for one, end in zip(orders, ends, strict=True))
    unit = "" if orders[0].model is not None else " units"
    finding = f"Same work, {in_words(len(orders))} orders: {arrow}{unit}."
    best, worst = ends.index(min(ends)), ends.index(max(ends))
    idle = f"{orders[best].title} idles {_idle(orders[best])} instead of {_idle(orders[worst])}"
    return finding, f"{idle}, {_memory(peaks[best], peaks[worst], orders[worst].title)}."


def _same_end(orders: Sequence[TimedOrder], peaks: Sequence[float]) -> tuple[str, str]:
    first = orders[0]
    both = "Both" if len(orders) == 2 else f"All {in_words(len(orders))}"
    them = "it" if first.model is not None else "them"
    idle = f"{both} end at {first.long(first.timed.makespan)} and idle {_idle(first)} of {them}."
    least, most = peaks.index(min(peaks)), peaks.index(max(peaks))
    if peaks[least] == peaks[most]:
        return "Same bubble, same memory:", idle
    part = peaks[most] / peaks[least]
    held = f"{orders[least].title} holds {orders[least].holds(peaks[least])}"
    other = orders[most].holds(peaks[most]).split(" ")[0]
    return (
        f"Same bubble, {_fraction(part)} the memory: {held} where {orders[most].title} holds {other}.",
        idle,
    )


def _idle(one: TimedOrder) -> str:
    return percent(one.timed.idle_over_makespan)


def _fraction(part: float) -> str:
    names = {2: "half", 3: "a third of", 4: "a quarter of"}
    return (
        names.get(round(part), f"1/{short(part, 2)} of")
        if abs(part - round(part)) < 0.02
        else f"{percent(1 / part)} of"
    )


def _memory(own: float, other: float, title: str) -> str:
    if own == other:
        return f"in the memory of {title}"
    if own > other:
        return f"for {short(own / other)} × the memory of {title}"
    return f"in {round(100 * own / other)} % of the memory of {title}"
