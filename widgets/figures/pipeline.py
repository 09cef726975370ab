"""A pipeline picture as a plotly figure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from widgets.figures.sheet import colour, dress, legend_once, line_at, predicted

SECOND, FIRST = 4, 8
"""Flags of a block's packed kind: halves of an overlapped pair."""
WORDS = {"F": "forward", "B": "backward", "I": "backward for inputs", "W": "backward for weights"}


SIDES = ("top center", "bottom center", "middle right", "middle left")


def pipeline_figure(picture: Mapping[str, Any], measured: Mapping[str, Any]) -> go.Figure:
    """Schedules below each other on one clock; solid strips are what real ranks did. Or all over memory."""
    if picture["shown"] == "scatter":
        return _scatter(picture)
    lanes = picture["schedules"]
    titles = [f"{lane['title']}: {lane['end']} {lane['unit']}".strip() for lane in lanes]
    figure = make_subplots(rows=len(lanes), shared_xaxes=True, subplot_titles=titles, vertical_spacing=0.08)
    seen: set[str] = set()
    for row, lane in enumerate(lanes, start=1):
        run = (measured.get("schedules") or {}).get(lane["name"])
        for trace in (*_blocks(lane, seen), *_strips(lane, run, seen)):
            figure.add_trace(trace, row=row, col=1)
        line_at(figure, lane["makespan"], row)
        figure.update_yaxes(autorange="reversed", row=row, col=1)
    figure.update_xaxes(title_text=picture["unit"], row=len(lanes), col=1)
    ranks = sum(len(lane["counts"]) for lane in lanes)
    return dress(figure, picture["headline"], 180 + 26 * ranks + 60 * len(lanes))


def _columns(lane: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Kind, micro-batch, rank and height of each block; halves of an overlapped pair lie over each other."""
    rank = np.repeat(np.arange(len(lane["counts"])), lane["counts"])
    packed, microbatch = np.frombuffer(lane["kind"], "u1"), np.frombuffer(lane["microbatch"], "<u2")
    names = np.array([f"rank {r}" for r in rank])
    return packed & 3, microbatch, names, np.where(packed & (FIRST | SECOND), 0.4, 0.8)


def _offset(lane: Mapping[str, Any]) -> np.ndarray:
    """Upper edge of each block over its rank's middle; the axis points down."""
    return np.where(np.frombuffer(lane["kind"], "u1") & SECOND, 0.0, -0.4)


def _blocks(lane: Mapping[str, Any], seen: set[str]) -> list[go.Bar]:
    kind, microbatch, rank, high = _columns(lane)
    start, duration = (np.frombuffer(lane[name], "<f4") for name in ("start", "duration"))
    return [
        go.Bar(
            base=start[kind == code],
            x=duration[kind == code],
            y=rank[kind == code],
            text=microbatch[kind == code],
            orientation="h",
            width=high[kind == code],
            offset=_offset(lane)[kind == code],
            marker=predicted(name),
            hovertemplate="%{y}, micro-batch %{text}: %{base} + %{x}<extra></extra>",
            **legend_once(seen, f"{WORDS[name]}, simulated"),
        )
        for code, name in enumerate("FBIW")
        if (kind == code).any()
    ]


def _strips(lane: Mapping[str, Any], run: Mapping[str, Any] | None, seen: set[str]) -> list[go.Bar]:
    if run is None:
        return []
    kind, _, rank, _ = _columns(lane)
    start, duration = (np.frombuffer(run[name], "<f4") for name in ("start", "duration"))
    ran = ~np.isnan(start)
    return [
        go.Bar(
            base=start[ran & (kind == code)],
            x=duration[ran & (kind == code)],
            y=rank[ran & (kind == code)],
            orientation="h",
            width=0.25,
            offset=0.12,
            marker={"color": colour(name)},
            **legend_once(seen, f"{WORDS[name]}, {run['source']}"),
        )
        for code, name in enumerate("FBIW")
        if (ran & (kind == code)).any()
    ]


def _scatter(picture: Mapping[str, Any]) -> go.Figure:
    """Throughput over memory, the front dashed, the limit as a line."""
    points, unit = picture["scatter"]["points"], picture["units"]["hold"]
    figure = make_subplots(rows=1, cols=1)
    figure.add_trace(
        go.Scatter(
            x=[point["x"] for point in points],
            y=[point["y"] for point in points],
            text=[point["title"] for point in points],
            mode="markers+text",
            textposition=[SIDES[place % len(SIDES)] for place in range(len(points))],
            marker={"symbol": "circle-open", "size": 10, "color": colour("ink"), "line": {"width": 1.5}},
            hovertext=[point["words"] for point in points],
            name="schedules, simulated",
        )
    )
    named = {point["name"]: point for point in points}
    front = [named[name] for name in picture["scatter"]["front"]]
    figure.add_trace(
        go.Scatter(
            x=[point["x"] for point in front],
            y=[point["y"] for point in front],
            mode="lines",
            line={"dash": "dash", "color": colour("ink2")},
            name="none is better in both",
        )
    )
    if picture["cap"]:
        line_at(figure, picture["cap"]["value"], 1, picture["cap"]["words"])
    figure.update_xaxes(title_text=f"most memory of a rank, {unit}", rangemode="tozero")
    figure.update_yaxes(title_text="throughput: work / makespan", tickformat=".0%")
    return dress(figure, picture["headline"], 520)
