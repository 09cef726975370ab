"""A pipeline picture as a plotly figure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from widgets.figures.sheet import colour, dress, legend_once, line_at, predicted

WORDS = {"F": "forward", "B": "backward", "I": "backward for inputs", "W": "backward for weights"}


def pipeline_figure(picture: Mapping[str, Any], measured: Mapping[str, Any]) -> go.Figure:
    """Schedules below each other on one clock; solid strips are what real ranks did."""
    lanes = picture["schedules"]
    titles = [f"{lane['title']}: {lane['end']} units" for lane in lanes]
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


def _columns(lane: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Kind, micro-batch and rank of each block."""
    rank = np.repeat(np.arange(len(lane["counts"])), lane["counts"])
    kind, microbatch = np.frombuffer(lane["kind"], "u1"), np.frombuffer(lane["microbatch"], "<u2")
    return kind, microbatch, np.array([f"rank {r}" for r in rank])


def _blocks(lane: Mapping[str, Any], seen: set[str]) -> list[go.Bar]:
    kind, microbatch, rank = _columns(lane)
    start, duration = (np.frombuffer(lane[name], "<f4") for name in ("start", "duration"))
    return [
        go.Bar(
            base=start[kind == code],
            x=duration[kind == code],
            y=rank[kind == code],
            text=microbatch[kind == code],
            orientation="h",
            width=0.8,
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
    kind, _, rank = _columns(lane)
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
