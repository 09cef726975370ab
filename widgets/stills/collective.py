"""A collective picture as PNG."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from widgets.raster import WIDTH, Sheet, table_height


def collective_png(picture: Mapping[str, Any], measured: Mapping[str, Any]) -> bytes:
    """Chunk grid after the step, and time against size."""
    sheet = Sheet(
        270 + table_height(picture["table"]), picture["headline"], f"Collectives  {picture['kick']}"
    )
    sheet.text(0, 10, f"{picture['title'][0]}: {picture['title'][1]}", 11, bold=True)
    _cells(sheet, picture["grid"], measured.get("values"))
    sheet.text(500, 10, "Time against buffer size", 11, bold=True)
    _chart(sheet, picture["chart"], measured.get("points") or [])
    sheet.table(270, picture["table"])
    return sheet.png()


def _cells(sheet: Sheet, grid: Mapping[str, Any], values: list[str] | None) -> None:
    ranks, chunks = grid["ranks"], grid["chunks"]
    wide, high = 390 / ranks, min(52.0, 200 / chunks)
    gap = 6 if wide > 40 else 1
    into = {(move[1], move[2]) for move in grid["moves"]}
    for rank in range(ranks):
        if wide > 30:
            sheet.text(62 + (rank + 0.5) * wide, 32, f"rank {rank}", 10, anchor="m", bold=True)
        for chunk in range(chunks):
            value, x, y = grid["after"][rank * chunks + chunk], 62 + rank * wide, 40 + chunk * high
            moved = (rank, chunk) in into
            sheet.box(
                x,
                y,
                wide - gap,
                high - min(6, high / 4),
                edge="communication" if moved else "line",
                thick=1.5 if moved else 1,
            )
            _contributors(
                sheet,
                grid,
                value,
                x,
                y,
                wide - gap,
                high - min(6, high / 4),
                values[rank * chunks + chunk] if values else "",
            )
    for chunk in range(chunks):
        if high > 12:
            sheet.text(
                0,
                40 + chunk * high + high / 2,
                (grid["names"] or [])[chunk] if grid["names"] else f"chunk {chunk}",
                10,
                "ink2",
            )


def _contributors(
    sheet: Sheet,
    grid: Mapping[str, Any],
    value: int,
    x: float,
    y: float,
    wide: float,
    high: float,
    words: str,
) -> None:
    if value < 0:
        return
    if not grid["masks"] or wide < 30 or high < 14:
        part = (
            (value / grid["ranks"] if not grid["masks"] else value.bit_count() / grid["ranks"])
            if grid["sums"]
            else 1.0
        )
        sheet.box(
            x + 1, y + 1 + (high - 2) * (1 - part), wide - 2, (high - 2) * part, sheet.tint("communication")
        )
        return
    step = (wide - 8) / grid["ranks"]
    for rank in range(grid["ranks"]):
        held = bool(value & (1 << rank))
        sheet.box(
            x + 4 + rank * step,
            y + 4,
            step - 2,
            min(11, high - 8),
            "communication" if held else "",
            "communication" if held else "line",
            0.5,
        )
    if words and high > 30:
        sheet.text(x + wide / 2, y + high - 6, words, 9, anchor="m")


def _chart(sheet: Sheet, chart: Mapping[str, Any], points: list[list[Any]]) -> None:
    left, right, top, bottom = 550.0, float(WIDTH), 24.0, 230.0
    times = [time for line in chart["lines"] for time in line["seconds"]] + [point[1] for point in points]
    low, high = math.log10(min(times)), math.log10(max(times))
    first, last = math.log2(chart["sizes"][0]), math.log2(chart["sizes"][-1])

    def at(size: float, time: float) -> tuple[float, float]:
        return left + (math.log2(size) - first) / (last - first) * (right - left), bottom - (
            math.log10(time) - low
        ) / max(high - low, 1e-9) * (bottom - top)

    for power in range(math.ceil(low), math.floor(high) + 1):
        y = at(chart["sizes"][0], 10**power)[1]
        sheet.line([(left, y), (right, y)], "grid")
        sheet.text(left - 6, y + 4, _time(10.0**power), 9.5, "ink2", "r")
    for line in chart["lines"]:
        places = [at(size, time) for size, time in zip(chart["sizes"], line["seconds"], strict=True)]
        sheet.line(
            places,
            "communication" if line["chosen"] else "ink2",
            2 if line["chosen"] else 1.2,
            (6, 3) if line["chosen"] else (2, 3),
        )
        sheet.text(
            places[-4][0],
            places[-4][1] - 8,
            line["words"],
            10,
            "ink" if line["chosen"] else "ink2",
            "r",
            bold=line["chosen"],
        )
    for size, time, _ in points:
        sheet.dot(*at(size, time), 4, "ink", "background")
    sheet.text(left, bottom + 16, "1 KiB", 9.5, "ink2")
    sheet.text(right, bottom + 16, "64 MiB", 9.5, "ink2", "r")


def _time(seconds: float) -> str:
    scale, unit = next(
        (s, u) for s, u in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (0.0, "")) if seconds >= 0.999 * s
    )
    return f"{seconds / scale:.0f} {unit}"
