"""What a picture of pipeline schedules says: the finding in one sentence, and the table under it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from playbook.pictures.words import EQUAL, difference, in_words, micro_batches, points, row, short
from playbook.units import percent

if TYPE_CHECKING:
    from playbook.pictures.pipeline import TimedOrder
    from playbook.pictures.pipeline_run import MeasuredOrder

TITLES = {
    "gpipe": "GPipe",
    "1f1b": "1F1B",
    "interleaved-1f1b": "Interleaved 1F1B",
    "looped-bfs": "Looped BFS",
    "zb-h1": "ZB-H1",
    "zb-h2": "ZB-H2",
    "interleaved-zero-bubble": "Interleaved zero bubble",
    "zbv": "ZB-V",
    "v-half": "V-Half",
    "v-min": "V-Min",
    "dualpipe": "DualPipe",
    "dualpipe-v": "DualPipe-V",
}


def title_of(name: str) -> str:
    """A schedule's name as papers write it; the name itself if it is not known here."""
    return TITLES.get(name, name)


def headline(orders: Sequence[TimedOrder], measured: Mapping[str, MeasuredOrder]) -> list[str]:
    """The finding, and its second half.

    Only schedules that ran are compared with the prediction, in the order shown.
    """
    finding, rest = _alone(orders[0]) if len(orders) == 1 else _together(orders)
    runs = ((one, measured[one.order.name].makespan) for one in orders if one.order.name in measured)
    ran = [(one, end) for one, end in runs if end is not None]
    if not ran:
        return [finding, rest]
    ends = " and ".join(short(end) for _, end in ran)
    gaps = " and ".join(difference(end, one.timed.makespan) for one, end in ran)
    return [finding, f"On real ranks: {ends} units, {gaps}."]


def _alone(one: TimedOrder) -> tuple[str, str]:
    peaks = one.peaks
    finding = f"{one.title} ends at {short(one.timed.makespan)} units and idles {_idle(one)} of them."
    return finding, f"Rank {peaks.index(max(peaks))} holds {micro_batches(max(peaks))} at its peak."


def _together(orders: Sequence[TimedOrder]) -> tuple[str, str]:
    ends = [one.timed.makespan for one in orders]
    peaks = [max(one.peaks) for one in orders]
    if max(ends) - min(ends) <= EQUAL * max(ends):
        return _same_end(orders, peaks)
    arrow = " → ".join(short(end) for end in ends)
    finding = f"Same work, {in_words(len(orders))} orders: {arrow} units."
    best, worst = ends.index(min(ends)), ends.index(max(ends))
    idle = f"{orders[best].title} idles {_idle(orders[best])} instead of {_idle(orders[worst])}"
    return finding, f"{idle}, {_memory(peaks[best], peaks[worst], orders[worst].title)}."


def _same_end(orders: Sequence[TimedOrder], peaks: Sequence[float]) -> tuple[str, str]:
    first = orders[0].timed
    both = "Both" if len(orders) == 2 else f"All {in_words(len(orders))}"
    idle = (
        f"{both} end at {short(first.makespan)} units and idle {percent(first.idle_over_makespan)} of them."
    )
    least, most = peaks.index(min(peaks)), peaks.index(max(peaks))
    if peaks[least] == peaks[most]:
        return "Same bubble, same memory:", idle
    part = peaks[most] / peaks[least]
    held = f"{orders[least].title} holds {micro_batches(peaks[least])}"
    other = f"{orders[most].title} holds {short(peaks[most])}"
    return f"Same bubble, {_fraction(part)} the memory: {held} where {other}.", idle


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


def table_rows(orders: Sequence[TimedOrder], measured: Mapping[str, MeasuredOrder]) -> dict[str, Any]:
    """Makespan, idle share and peak of each schedule: formula, measured, difference."""
    rows = []
    for one in orders:
        run, timed = measured.get(one.order.name), one.timed
        end = run.makespan if run else None
        rows.append(
            row(
                f"{one.title}, makespan",
                "units",
                formula=short(timed.makespan, 4),
                traced="no clock",
                measured=short(end, 4) if end is not None else (run.words if run else "not run"),
                difference=difference(end, timed.makespan),
            )
        )
        idle = run.idle_over_makespan if run else None
        rows.append(
            row(
                f"{one.title}, idle",
                "idle / makespan",
                formula=percent(timed.idle_over_makespan),
                traced="no clock",
                measured=percent(idle) if idle is not None else "not run" if run is None else "…",
                difference=points(idle, timed.idle_over_makespan) if idle is not None else "",
            )
        )
    source = next((run.source for run in measured.values()), "")
    return {"head": "per schedule", "rows": rows, "sources": {"formula": "simulated", "measured": source}}
