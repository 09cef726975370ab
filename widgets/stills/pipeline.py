"""A pipeline picture as PNG."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from widgets.raster import WIDTH, Sheet, table_height

KINDS = ("F", "B", "I", "W")
SECOND, FIRST = 4, 8
"""Flags of a block's packed kind: halves of an overlapped pair."""
LEFT, RIGHT = 46.0, WIDTH - 150.0


def pipeline_png(picture: Mapping[str, Any], measured: Mapping[str, Any]) -> bytes:
    """Schedules stacked on one clock with the solid strips of a run; or all of them over memory."""
    if picture["shown"] == "scatter":
        return _scatter(picture)
    lanes = picture["schedules"]
    heights = [_row_height(len(lane["counts"])) for lane in lanes]
    total = sum(len(lane["counts"]) * height + 34 for lane, height in zip(lanes, heights, strict=True))
    sheet = Sheet(
        total + 30 + table_height(picture["table"]), picture["headline"], f"Pipeline  {picture['kick']}"
    )
    end = max(lane["makespan"] for lane in lanes) * 1.012
    y = 0.0
    for lane, height in zip(lanes, heights, strict=True):
        _lane(sheet, lane, (measured.get("schedules") or {}).get(lane["name"]), y, height, end)
        y += len(lane["counts"]) * height + 34
    sheet.table(y + 10, picture["table"])
    return sheet.png()


def _row_height(ranks: int) -> float:
    return 26 if ranks <= 8 else max(4.0, 208 / ranks)


def _lane(
    sheet: Sheet, lane: Mapping[str, Any], run: Mapping[str, Any] | None, y: float, height: float, end: float
) -> None:
    block, scale = height - (6 if height > 12 else 1), (RIGHT - LEFT) / end
    sheet.text(0, y + 12, lane["title"], 11.5, bold=True)
    sheet.text(sheet.width_of(lane["title"], 11.5, True) + 8, y + 12, lane["note"], 10.5, "ink2")
    ranks = len(lane["counts"])
    for rank in range(ranks):
        top = y + 20 + rank * height
        if height > 10:
            sheet.text(0, top + block / 2 + 4, f"rank {rank}", 9.5, "ink2")
        sheet.box(LEFT, top, lane["makespan"] * scale, block, "idle")
    _blocks(sheet, lane, y + 20, height, block, scale)
    if run:
        _strips(sheet, lane, run, y + 20, height, block, scale)
    x = LEFT + lane["makespan"] * scale
    sheet.line([(x, y + 14), (x, y + 20 + ranks * height)], "ink", 1.5)
    _facts(sheet, lane, run, y)


def _facts(sheet: Sheet, lane: Mapping[str, Any], run: Mapping[str, Any] | None, y: float) -> None:
    x = RIGHT + 14
    sheet.text(x, y + 34, f"{lane['end']} {lane['unit']}".strip(), 13, bold=True)
    sheet.text(x, y + 52, f"idle {lane['idle'][0]}", 10.5, "ink2")
    sheet.text(x, y + 68, f"{lane['peak'][0]} {lane['peak'][1]}", 10.5, "bad" if lane["over"] else "ink2")
    if run:
        sheet.text(x, y + 84, f"{run['words']} {run['difference']}", 10.5)


def _blocks(
    sheet: Sheet, lane: Mapping[str, Any], y: float, height: float, block: float, scale: float
) -> None:
    start, duration = (np.frombuffer(lane[name], "<f4") for name in ("start", "duration"))
    packed, microbatch = np.frombuffer(lane["kind"], "u1"), np.frombuffer(lane["microbatch"], "<u2")
    rank = np.repeat(np.arange(len(lane["counts"])), lane["counts"])
    for i in range(start.size):
        name, wide = KINDS[packed[i] & 3], float(duration[i]) * scale
        half = bool(packed[i] & (FIRST | SECOND))
        high = block / 2 if half else block
        left = LEFT + float(start[i]) * scale
        top = y + float(rank[i]) * height + (high if packed[i] & SECOND else 0)
        sheet.box(left + 0.5, top, wide - 1, high, sheet.tint(name), name, 0.5)
        if wide > 11 and height > 20:
            base = top + (high / 2 + 3 if half else 11)
            sheet.text(left + wide / 2, base, f"{microbatch[i]}", 7 if half else 8, anchor="m")


def _strips(
    sheet: Sheet,
    lane: Mapping[str, Any],
    run: Mapping[str, Any],
    y: float,
    height: float,
    block: float,
    scale: float,
) -> None:
    start, duration = (np.frombuffer(run[name], "<f4") for name in ("start", "duration"))
    kind, rank = np.frombuffer(lane["kind"], "u1"), np.repeat(np.arange(len(lane["counts"])), lane["counts"])
    for i in np.flatnonzero(~np.isnan(start)):
        half = 2 if kind[i] & (FIRST | SECOND) else 4
        sheet.box(
            LEFT + float(start[i]) * scale + 0.5,
            y + float(rank[i]) * height + block - 5 + (2 if kind[i] & SECOND else 0),
            float(duration[i]) * scale - 1,
            half,
            KINDS[kind[i] & 3],
        )


def _scatter(picture: Mapping[str, Any]) -> bytes:
    """Throughput over memory: open circles, the front dashed, the limit as a line of ink."""
    high, left, right, top = 300.0, 48.0, WIDTH - 40.0, 20.0
    sheet = Sheet(
        top + high + 60 + table_height(picture["table"]), picture["headline"], f"Pipeline  {picture['kick']}"
    )
    points, cap = picture["scatter"]["points"], picture["cap"].get("value", 0.0)
    most = max(point["x"] for point in points)
    widest = max(most, cap if cap <= 1.6 * most else 0.0) * 1.12
    bottom = max(0.0, min(point["y"] for point in points) - 0.05)

    def at(point: Mapping[str, Any]) -> tuple[float, float]:
        across, up = point["x"] / widest, (point["y"] - bottom) / (1 - bottom)
        return left + across * (right - left), top + high * (1 - up)

    sheet.line([(left, top + high), (right, top + high)], "line")
    sheet.text(0, 12, "throughput: work / makespan", 10.5, "ink2")
    sheet.text(
        right, top + high + 18, f"most memory of a rank, {picture['units']['hold']}", 10.5, "ink2", "r"
    )
    if 0 < cap <= widest:
        x = left + cap / widest * (right - left)
        sheet.line([(x, top), (x, top + high)], "ink", 1.5)
        sheet.text(x + 5, top + 10, picture["cap"]["words"], 10.5, bold=True)
    named = {point["name"]: point for point in points}
    sheet.line([at(named[name]) for name in picture["scatter"]["front"]], "ink2", 1.5, (5, 3))
    for point in points:
        x, y = at(point)
        sheet.dot(x, y, 4, "background", "ink")
        sheet.text(x + 8, y + 4, f"{point['title']}, {point['y']:.0%}", 10, bold=point["shown"])
    sheet.table(top + high + 30, picture["table"])
    return sheet.png()
