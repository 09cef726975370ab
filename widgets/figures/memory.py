"""A memory picture as a plotly figure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from widgets.figures.sheet import colour, dress, legend_once, line_at, predicted, tint

GB = 1e9
STATE = ("parameters", "gradients", "optimizer")


def memory_figure(picture: Mapping[str, Any], measured: Mapping[str, Any]) -> go.Figure:
    """State under each ZeRO stage against the capacity, and one step over time; both in GB."""
    bars, step = picture["bars"], picture["step"]
    titles = (" ".join(bars["title"]), " ".join(step["title"]))
    figure = make_subplots(rows=2, subplot_titles=titles, row_heights=[0.4, 0.6], vertical_spacing=0.14)
    seen: set[str] = set()
    for trace in _states(bars, seen):
        figure.add_trace(trace, row=1, col=1)
    line_at(figure, bars["capacity"] / GB, 1, bars["capacity_words"])
    for trace in (*_levels(step, seen), *_trace(measured)):
        figure.add_trace(trace, row=2, col=1)
    figure.update_yaxes(autorange="reversed", row=1, col=1)
    figure.update_xaxes(title_text="GB per rank", row=1, col=1)
    figure.update_yaxes(title_text="GB", row=2, col=1)
    figure.update_xaxes(showticklabels=False, row=2, col=1)
    dress(figure, picture["headline"], 760)
    return figure.update_layout(barmode="stack")


def _states(bars: Mapping[str, Any], seen: set[str]) -> list[go.Bar]:
    made = []
    for name in STATE:
        parts = [{part[0]: part[1] for part in (*row["copied"], *row["shared"])} for row in bars["rows"]]
        made.append(
            go.Bar(
                x=[part.get(name, 0) / GB for part in parts],
                y=[row["name"] for row in bars["rows"]],
                orientation="h",
                marker=predicted(name),
                **legend_once(seen, name),
            )
        )
    return made


def _levels(step: Mapping[str, Any], seen: set[str]) -> list[go.Scatter]:
    parts = (
        np.frombuffer(step["levels"], "<u2").reshape(-1, len(step["terms"])) / 65535 * step["highest"] / GB
    )
    return [
        go.Scatter(
            x=np.arange(len(parts)),
            y=parts[:, place],
            stackgroup="step",
            mode="lines",
            line={"shape": "hv", "width": 1, "color": colour(name)},
            fillcolor=tint(name),
            **legend_once(seen, name),
        )
        for place, name in enumerate(step["terms"])
        if parts[:, place].any()
    ]


def _trace(measured: Mapping[str, Any]) -> list[go.Scatter]:
    trace = measured.get("trace")
    if not trace:
        return []
    totals = np.frombuffer(trace["totals"], "<u2") / 65535 * trace["highest"] / GB
    line = {"shape": "hv", "dash": "dot", "color": colour("ink")}
    return [go.Scatter(x=np.arange(len(totals)), y=totals, mode="lines", name="traced", line=line)]
