"""Schedules of a picture in the forms in which people take them away: code, commands, tables, traces."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from playbook.pictures.pipeline_orders import TimedOrder
from playbook.pictures.pipeline_setting import Setting
from playbook.schedules import plans

if TYPE_CHECKING:
    from pandas import DataFrame


def pipeline_copies(orders: Sequence[TimedOrder], setting: Setting) -> dict[str, str]:
    """The schedules as Python, as commands and as JSON."""
    python = ["import playbook as pb", ""]
    command = []
    for one in orders:
        sizes, costs = _sizes(one), _costs(one)
        given = ", ".join(f"{name}={value!r}" for name, value in sizes.items())
        words = ", ".join(f"{name}={_number(value)}" for name, value in costs.items())
        name = one.order.name
        python.append(f"pb.schedule({_quoted(name)}, {given}).simulate({words})")
        if name in plans():
            options = {
                key: value for key, value in {**sizes, **costs}.items() if not isinstance(value, list | dict)
            }
            told = " ".join(f"--{key.replace('_', '-')} {value:g}" for key, value in options.items())
            command.append(f"playbook schedule {name} {told}")
        else:
            command.append(f"# {name} is an order of yours, not a schedule by name")
    names = [one.order.name for one in orders]
    return {
        "python": "\n".join([*python, ""]),
        "command": "\n".join(command),
        "json": json.dumps({"schedules": names, **asdict(setting)}, indent=2),
    }


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _number(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(f'{one:g}' for one in value)}]"
    return f"{value:g}" if isinstance(value, float | int) else repr(value)


def _sizes(one: TimedOrder) -> dict[str, int]:
    order = one.order
    given = {"stages": order.stages, "microbatches": order.microbatches}
    return {**given, "chunks": order.chunks} if order.chunks > 1 else given


def _costs(one: TimedOrder) -> dict[str, Any]:
    """Arguments of `Schedule.simulate` that time an order as the picture does."""
    return {name: value for name, value in one.given.items() if value or name != "comm"}


def times_table(orders: Sequence[TimedOrder]) -> DataFrame:
    """Every action of every schedule: the timeline table, the schedule's name in `scenario`.

    Times are in the picture's units where no model is chosen.
    """
    import pandas

    tables = [one.timed.table.assign(scenario=one.order.name) for one in orders]
    return pandas.concat(tables, ignore_index=True)


def times_csv(orders: Sequence[TimedOrder]) -> str:
    """The table of times as CSV."""
    return times_table(orders).to_csv(index=False)


def chrome_trace(orders: Sequence[TimedOrder]) -> str:
    """All schedules as one trace for chrome://tracing or Perfetto, a process each."""
    events: list[dict[str, Any]] = []
    for place, one in enumerate(orders):
        events += _events(one, place)
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"})


def _events(one: TimedOrder, place: int) -> list[dict[str, Any]]:
    """A schedule's own trace, its ranks in a group of process numbers of their own."""
    trace = one.timed.to_chrome_trace()
    made = json.loads(trace) if isinstance(trace, str) else trace
    found = made["traceEvents"] if isinstance(made, dict) else made
    first = place * (one.order.stages + 1)
    moved = [{**event, "pid": first + int(event.get("pid", 0))} for event in found]
    for event in moved:
        if event.get("ph") == "M" and event.get("name") == "process_name":
            event["args"] = {"name": f"{one.title}: {event['args']['name']}"}
    return moved
