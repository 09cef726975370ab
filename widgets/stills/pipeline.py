"""A pipeline picture as PNG."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from widgets.raster import WIDTH, Sheet, table_height

KINDS = ("F", "B", "I", "W")


def pipeline_png(picture: Mapping[str, Any], measured: Mapping[str, Any]) -> bytes:
    """Schedules stacked on one clock, with the solid strips of a run."""
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
    left, right, block = 46.0, WIDTH - 150.0, height - (6 if height > 12 else 1)
    sheet.text(0, y + 12, lane["title"], 11.5, bold=True)
    sheet.text(sheet.width_of(lane["title"], 11.5, True) + 8, y + 12, lane["note"], 10.5, "ink2")
    scale = (right - left) / end
    start, duration = (np.frombuffer(lane[name], "<f4") for name in ("start", "duration"))
    kind, microbatch = np.frombuffer(lane["kind"], "u1"), np.frombuffer(lane["microbatch"], "<u2")
    at = 0
    for rank, count in enumerate(lane["counts"]):
        top = y + 20 + rank * height
        if height > 10:
            sheet.text(0, top + block / 2 + 4, f"rank {rank}", 9.5, "ink2")
        sheet.box(left, top, lane["makespan"] * scale, block, "idle")
        for i in range(at, at + count):
            name, wide = KINDS[kind[i]], float(duration[i]) * scale
            sheet.box(left + float(start[i]) * scale + 0.5, top, wide - 1, block, sheet.tint(name), name, 0.5)
            if wide > 11 and height > 20:
                sheet.text(
                    left + (float(start[i]) + float(duration[i]) / 2) * scale,
                    top + 11,
                    f"{microbatch[i]}",
                    8,
                    anchor="m",
                )
        at += count
    if run:
        _strips(sheet, lane, run, y + 20, height, block, left, scale)
    sheet.line(
        [
            (left + lane["makespan"] * scale, y + 14),
            (left + lane["makespan"] * scale, y + 20 + len(lane["counts"]) * height),
        ],
        "ink",
        1.5,
    )
    sheet.text(right + 14, y + 34, f"{lane['end']} units", 13, bold=True)
    sheet.text(right + 14, y + 52, f"idle {lane['idle'][0]}", 10.5, "ink2")
    sheet.text(right + 14, y + 68, f"{lane['peak'][0]} {lane['peak'][1]}", 10.5, "ink2")
    if run:
        sheet.text(right + 14, y + 84, f"{run['words']} {run['difference']}", 10.5)


def _strips(
    sheet: Sheet,
    lane: Mapping[str, Any],
    run: Mapping[str, Any],
    y: float,
    height: float,
    block: float,
    left: float,
    scale: float,
) -> None:
    start, duration = (np.frombuffer(run[name], "<f4") for name in ("start", "duration"))
    kind, rank = np.frombuffer(lane["kind"], "u1"), np.repeat(np.arange(len(lane["counts"])), lane["counts"])
    for i in np.flatnonzero(~np.isnan(start)):
        sheet.box(
            left + float(start[i]) * scale + 0.5,
            y + float(rank[i]) * height + block - 5,
            float(duration[i]) * scale - 1,
            4,
            KINDS[kind[i]],
        )
