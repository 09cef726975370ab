"""A memory picture as PNG."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from widgets.raster import WIDTH, Sheet, table_height

RANK = 22.0
"""Height of the row of a pipeline rank."""


def memory_png(picture: Mapping[str, Any], measured: Mapping[str, Any]) -> bytes:
    """State under each ZeRO stage, one step over time, pipeline ranks, a real step's peaks: what there is."""
    real, stages = measured.get("rows") or [], picture["stages"]
    ranks = 56 + RANK * len(stages["rows"]) if stages else 0
    end = 460 + ranks + (30 + 26 * len(real) if real else 0)
    sheet = Sheet(end + table_height(picture["table"]), picture["headline"], f"Memory  {picture['kick']}")
    _states(sheet, picture["bars"])
    _levels(sheet, picture["step"])
    if stages:
        _stages(sheet, stages, 460)
    _peaks(sheet, measured, 460 + ranks)
    sheet.table(end, picture["table"])
    return sheet.png()


def _stages(sheet: Sheet, stages: Mapping[str, Any], y: float) -> None:
    """Peak of each pipeline rank drawn, the worst one in bold."""
    left, right = 190.0, WIDTH - 120.0
    scale = (right - left) / max(row["total"] for row in stages["rows"])
    sheet.text(0, y + 10, stages["title"][0], 11, bold=True)
    sheet.text(0, y + 25, stages["title"][1], 9.5, "ink2")
    for place, row in enumerate(stages["rows"]):
        top, x, worst = y + 34 + RANK * place, left, row["rank"] == stages["worst"]
        sheet.text(0, top + 12, row["name"], 10, bold=worst)
        sheet.text(56, top + 12, row["sub"], 9, "ink2")
        for name, size, words in row["parts"]:
            wide = max(size * scale, 1)
            sheet.box(x, top, wide - 1, RANK - 6, sheet.tint(name), name)
            if wide > 40:
                sheet.text(x + 5, top + 12, words, 9)
            x += wide
        sheet.text(x + 8, top + 12, row["words"] + ("  worst" if worst else ""), 10, bold=worst)


def _states(sheet: Sheet, bars: Mapping[str, Any]) -> None:
    left, right = 104.0, WIDTH - 190.0
    scale = (right - left) / max(*(row["total"] for row in bars["rows"]), bars["capacity"])
    sheet.text(0, 10, bars["title"][0], 11, bold=True)
    for place, row in enumerate(bars["rows"]):
        y, x = 22.0 + 38 * place, left
        sheet.text(0, y + 14, row["name"], 11, bold=True)
        sheet.text(0, y + 27, row["sub"], 9.5, "ink2")
        for kind, top, high in (("copied", 0.0, 26.0), ("shared", 17.0, 9.0)):
            for name, size, words in row[kind]:
                wide = max(size * scale, 2.5)
                sheet.box(x, y + top, wide - 1, high, sheet.tint(name), name)
                if kind == "copied" and wide > 44:
                    sheet.text(x + 6, y + 17, words, 9.5)
                x += wide
        told = row["parts"] + ("  ✓ state fits" if row["fits"] else "")
        words, limit = sheet.width_of(row["words"], 12, True) + 8, left + bars["capacity"] * scale
        if x - 4 < limit < x + 18 + words + sheet.width_of(told, 10):  # the line would cross the words
            x = limit if limit + 10 + words + sheet.width_of(told, 10) < WIDTH else x
        sheet.text(x + 10, y + 18, row["words"], 12, bold=True)
        sheet.text(x + 10 + words, y + 18, told, 10, "ink2")
    at = left + bars["capacity"] * scale
    sheet.line([(at, 18), (at, 176)], "ink", 1.5)
    sheet.text(at, 190, bars["capacity_words"], 10, anchor="m", bold=True)


def _levels(sheet: Sheet, step: Mapping[str, Any]) -> None:
    left, right, top, bottom = 34.0, WIDTH - 156.0, 240.0, 420.0
    parts = np.frombuffer(step["levels"], "<u2").reshape(-1, len(step["terms"])) / 65535 * step["highest"]
    total = parts.sum(axis=1)
    sheet.text(0, 222, step["title"][0], 11, bold=True)
    sheet.text(sheet.width_of(step["title"][0], 11, True) + 8, 222, step["title"][1], 10, "ink2")
    wide, scale = (right - left) / len(parts), (bottom - top) / (float(total.max()) * 1.12)
    base = np.zeros(len(parts))
    for place, name in enumerate(step["terms"]):
        above = base + parts[:, place]
        outline = [
            (left + (i + end) * wide, bottom - value * scale)
            for i, value in enumerate(above)
            for end in (0, 1)
        ]
        under = [
            (left + (i + end) * wide, bottom - base[i] * scale)
            for i in range(len(parts) - 1, -1, -1)
            for end in (1, 0)
        ]
        if parts[:, place].any():
            sheet.shape([*outline, *under], sheet.tint(name), name)
        base = above
        y = bottom - 4 - 22 * place
        sheet.box(right + 18, y - 8, 9, 9, sheet.tint(name), name)
        sheet.text(right + 33, y, name, 9.5)
        sheet.text(WIDTH, y, step["at_peak"][place], 9.5, anchor="r")
    at = left + (step["peak"] + 0.5) * wide
    sheet.line([(at, bottom - float(total[step["peak"]]) * scale - 8), (at, bottom)], "ink")
    sheet.text(
        min(at + 8, right - 240),
        bottom - float(total[step["peak"]]) * scale - 8,
        step["peak_words"],
        11,
        bold=True,
    )
    _twin(sheet, step, at, right, (bottom, scale))
    if step["turns"]:
        sheet.text((left + right) / 2, bottom + 16, step["turns"], 9.5, "ink2", "m")
        return
    for words, first, last in step["spans"]:
        sheet.text(left + (first + last + 1) / 2 * wide, bottom + 16, words, 9.5, "ink2", "m")


def _twin(sheet: Sheet, step: Mapping[str, Any], at: float, right: float, axis: tuple[float, float]) -> None:
    """Solid point of a recorded twin's peak; `axis` is where zero lies, and pixels a byte."""
    if "twin" not in step:
        return
    level = axis[0] - step["twin"]["peak"] * axis[1]
    sheet.dot(at, level, 4, "ink")
    sheet.text(min(at + 8, right - 240), level + 14, step["twin"]["words"], 9.5)


def _peaks(sheet: Sheet, measured: Mapping[str, Any], y: float) -> None:
    rows = measured.get("rows") or []
    if not rows:
        return
    left, top = 104.0, max(sum(part[1] for part in row["parts"]) for row in rows)
    sheet.text(0, y + 10, f"{measured['title'][0]}: {measured['title'][1]}", 10.5, bold=True)
    for place, row in enumerate(rows):
        x, base = left, y + 20 + 26 * place
        sheet.text(0, base + 14, row["source"], 10.5, "ink2")
        for name, size, _ in row["parts"]:
            wide = size / top * (WIDTH - 300)
            solid = row["source"] == "measured"
            sheet.box(x, base, wide - 1, 18, name if solid else sheet.tint(name), "" if solid else name)
            x += wide
        sheet.text(x + 8, base + 14, f"{row['words']} {row['difference']}", 10.5, bold=True)
