"""A timeline table in the Trace Event Format, which Perfetto and chrome://tracing open.

Source: Trace Event Format, Google, 2016: complete events ("X"), flow events ("s", "f" with bp "e"), metadata
events ("M"); times in microseconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pandas import DataFrame

Event = dict[str, Any]

_ACTION = re.compile(r"m(\d+)/([FBI])/stage(\d+)")
_COLUMNS = (
    *("scenario", "rank", "op", "lane", "kind", "label", "microbatch"),
    *("start_s", "duration_s", "bytes", "source"),
)


def chrome_trace(timeline: DataFrame, name: str = "pipeline") -> dict[str, Any]:
    """Write a timeline as a trace: one process a scenario, one thread a rank, an arrow a message.

    Parameters
    ----------
    timeline
        A timeline table, simulated or measured. Lanes other than "compute" become threads of their own.
    name
        What a scenario without a name is called.

    Returns
    -------
    dict
        The trace; `json.dumps` makes the file.

    Notes
    -----
    Starts and ends are rounded to whole nanoseconds each, so that actions that touch still do.
    """
    columns = [timeline[column].tolist() for column in _COLUMNS]
    rows = [dict(zip(_COLUMNS, values, strict=True)) for values in zip(*columns, strict=True)]
    processes = {scenario: pid for pid, scenario in enumerate(dict.fromkeys(columns[0]), start=1)}
    lanes = sorted(set(columns[3]), key=lambda lane: (lane != "compute", lane))
    places = [_place(row, processes, lanes) for row in rows]
    events = [*_names(rows, places, name), *map(_slice, rows, places), *_arrows(rows, places)]
    sources = sorted(set(columns[-1]))
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {"source": ", ".join(sources)},
    }


def _place(row: Event, processes: Mapping[str, int], lanes: list[str]) -> tuple[int, int]:
    """Process and thread of a row."""
    return processes[row["scenario"]], int(row["rank"]) * len(lanes) + lanes.index(row["lane"])


def _names(rows: list[Event], places: list[tuple[int, int]], name: str) -> Iterator[Event]:
    """Names of processes and threads, and threads in the order of their ranks."""
    first = dict(zip(reversed(places), reversed(rows), strict=True))
    for pid in sorted({pid for pid, _ in first}):
        scenario = next(row["scenario"] for (process, _), row in first.items() if process == pid)
        yield _about(pid, 0, "process_name", name=scenario or name)
    for (pid, tid), row in sorted(first.items(), key=lambda item: item[0]):
        lane = "" if row["lane"] == "compute" else f", {row['lane']}"
        yield _about(pid, tid, "thread_name", name=f"rank {row['rank']}{lane}")
        yield _about(pid, tid, "thread_sort_index", sort_index=tid)


def _about(pid: int, tid: int, what: str, **args: Any) -> Event:
    return {"ph": "M", "pid": pid, "tid": tid, "name": what, "args": args}


def _slice(row: Event, place: tuple[int, int]) -> Event:
    start, end = _bounds(row)
    return {
        "ph": "X",
        "pid": place[0],
        "tid": place[1],
        "name": row["label"],
        "cat": row["kind"],
        "ts": start / 1000,
        "dur": (end - start) / 1000,
        "args": {key: row[key] for key in ("op", "microbatch", "bytes", "source")},
    }


def _bounds(row: Event) -> tuple[int, int]:
    """Start and end in nanoseconds."""
    return round(row["start_s"] * 1e9), round((row["start_s"] + row["duration_s"]) * 1e9)


def _arrows(rows: list[Event], places: list[tuple[int, int]]) -> Iterator[Event]:
    """From each action to the one on another rank that needs its result."""
    found = {}
    for row, place in zip(rows, places, strict=True):
        match = _ACTION.fullmatch(str(row["op"]))
        if match:
            microbatch, kind, stage = match.groups()
            way = "forward" if kind == "F" else "backward"
            found[place[0], way, int(microbatch), int(stage)] = row, place
    number = 0
    for (pid, way, microbatch, stage), (row, place) in found.items():
        peer = found.get((pid, way, microbatch, stage + (1 if way == "forward" else -1)))
        if peer is None or peer[0]["rank"] == row["rank"]:
            continue
        number += 1
        about = {"id": number, "cat": "message", "name": f"{way} of micro-batch {microbatch}"}
        yield {"ph": "s", "pid": pid, "tid": place[1], "ts": _bounds(row)[1] / 1000, **about}
        start = _bounds(peer[0])[0] / 1000
        yield {"ph": "f", "bp": "e", "pid": pid, "tid": peer[1][1], "ts": start, **about}
