"""The table under a picture of pipelines: makespan, idle share, and each kind of action of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from playbook.pictures.pipeline_orders import TimedOrder
from playbook.pictures.words import difference, points, row, short
from playbook.units import percent

if TYPE_CHECKING:
    from playbook.pictures.pipeline_run import MeasuredOrder

KIND_TITLES = {
    "F": "forward",
    "B": "backward",
    "I": "backward for inputs",
    "W": "backward for weights",
    "F&B": "overlapped forward and backward",
}


def table_rows(orders: Sequence[TimedOrder], measured: Mapping[str, MeasuredOrder]) -> dict[str, Any]:
    """Makespan and idle share of each schedule: formula, measured, difference.

    A schedule that ran has one more row for each kind of action.
    """
    rows = []
    for one in orders:
        run = measured.get(one.order.name)
        rows += [_makespan(one, run), _idle(one, run), *_kinds(one, run)]
    source = next((run.source for run in measured.values()), "")
    return {"head": "per schedule", "rows": rows, "sources": {"formula": "simulated", "measured": source}}


def _makespan(one: TimedOrder, run: MeasuredOrder | None) -> dict[str, Any]:
    end = run.makespan if run else None
    return row(
        f"{one.title}, makespan",
        "" if one.model is not None else "units",
        formula=_exact(one, one.timed.makespan),
        traced="no clock",
        measured=_exact(one, end) if end is not None else (run.words if run else "not run"),
        difference=difference(end, one.timed.makespan),
    )


def _exact(one: TimedOrder, value: float) -> str:
    if one.model is not None:
        return one.bare(value)
    return short(value, 4)


def _idle(one: TimedOrder, run: MeasuredOrder | None) -> dict[str, Any]:
    idle = run.idle_over_makespan if run else None
    return row(
        f"{one.title}, idle share",
        "of makespan",
        formula=percent(one.timed.idle_over_makespan),
        traced="no clock",
        measured=percent(idle) if idle is not None else "not run" if run is None else "…",
        difference=points(idle, one.timed.idle_over_makespan) if idle is not None else "",
    )


def _kinds(one: TimedOrder, run: MeasuredOrder | None) -> list[dict[str, Any]]:
    if run is None or run.makespan is None:
        return []
    return [
        row(
            f"{one.title}, {KIND_TITLES[kind]}",
            f"mean of {count}",
            formula=_exact(one, predicted),
            traced="no clock",
            measured=_exact(one, found),
            difference=difference(found, predicted),
        )
        for kind, count, predicted, found in run.kinds(one.timed)
    ]
