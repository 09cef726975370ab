"""A collective picture's chart as a plotly figure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import plotly.graph_objects as go

from widgets.figures.sheet import colour, dress


def collective_figure(picture: Mapping[str, Any], measured: Mapping[str, Any]) -> go.Figure:
    """Time against the size of the buffer: a line for each algorithm, points for what real ranks took."""
    chart = picture["chart"]
    figure = go.Figure()
    for line in chart["lines"]:
        dash, hue = ("dash", "communication") if line["chosen"] else ("dot", "ink2")
        figure.add_trace(
            go.Scatter(
                x=chart["sizes"],
                y=line["seconds"],
                mode="lines",
                name=f"{line['words']}, formula",
                line={"dash": dash, "color": colour(hue), "width": 2},
            )
        )
    points = measured.get("points") or []
    if points:
        figure.add_trace(
            go.Scatter(
                x=[size for size, _, _ in points],
                y=[time for _, time, _ in points],
                mode="markers",
                name=measured["source"],
                marker={"color": colour("ink"), "size": 9},
            )
        )
    figure.update_xaxes(type="log", title_text="buffer, bytes")
    figure.update_yaxes(type="log", title_text="seconds")
    return dress(figure, picture["headline"], 480)
