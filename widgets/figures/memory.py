"""A memory picture as a plotly figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from playbook.pictures.memory_groups import GROUPS
from widgets.figures.sheet import colour, dress, legend_once, line_at, predicted, tint

GB = 1e9
STATE = ("parameters", "gradients", "optimizer")


def memory_figure(picture: Mapping[str, Any], measured: Mapping[str, Any]) -> go.Figure:
    """State under each ZeRO stage against the capacity, one step over time, and pipeline ranks; all in GB."""
    bars, step, stages = picture["bars"], picture["step"], picture["stages"]
    titles = [" ".join(one["title"]) for one in (bars, step, stages) if one]
    heights = [0.28, 0.42, 0.3] if stages else [0.4, 0.6]
    spacing = 0.1 if stages else 0.14
    figure = make_subplots(
        rows=len(titles), subplot_titles=titles, row_heights=heights, vertical_spacing=spacing
    )
    seen: set[str] = set()
    _put(figure, 1, _states(bars, seen))
    line_at(figure, bars["capacity"] / GB, 1, bars["capacity_words"])
    _put(figure, 2, [*_levels(step, seen), *_trace(measured), *_twin(step)])
    figure.update_yaxes(autorange="reversed", row=1, col=1)
    figure.update_xaxes(title_text="GB per rank", row=1, col=1)
    figure.update_yaxes(title_text="GB", row=2, col=1)
    figure.update_xaxes(showticklabels=False, row=2, col=1)
    if stages:
        _put(figure, 3, _stages(stages, seen))
        figure.update_yaxes(autorange="reversed", type="category", row=3, col=1)
        figure.update_xaxes(title_text="GB", row=3, col=1)
    dress(figure, picture["headline"], 760 + (140 + 18 * len(stages["rows"]) if stages else 0))
    return figure.update_layout(barmode="stack")


def _put(figure: go.Figure, row: int, traces: Sequence[Any]) -> None:
    for trace in traces:
        figure.add_trace(trace, row=row, col=1)


def _stages(stages: Mapping[str, Any], seen: set[str]) -> list[go.Bar]:
    """Peak of each pipeline rank drawn, by colour."""
    rows, worst = stages["rows"], stages["worst"]
    parts = [{part[0]: part[1] for part in row["parts"]} for row in rows]
    return [
        go.Bar(
            x=[part.get(name, 0) / GB for part in parts],
            y=[row["name"] + (", worst" if row["rank"] == worst else "") for row in rows],
            orientation="h",
            marker=predicted(name),
            **legend_once(seen, name),
        )
        for name in GROUPS
        if any(name in part for part in parts)
    ]


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


def _twin(step: Mapping[str, Any]) -> list[go.Scatter]:
    """Peak of a recorded twin, a solid point on the formula's."""
    if "twin" not in step:
        return []
    twin, marker = step["twin"], {"color": colour("ink"), "size": 9}
    at = {"x": [step["peak"]], "y": [twin["peak"] / GB]}
    return [go.Scatter(**at, mode="markers", name=twin["words"], hovertext=[twin["source"]], marker=marker)]


def _trace(measured: Mapping[str, Any]) -> list[go.Scatter]:
    trace = measured.get("trace")
    if not trace:
        return []
    totals = np.frombuffer(trace["totals"], "<u2") / 65535 * trace["highest"] / GB
    line = {"shape": "hv", "dash": "dot", "color": colour("ink")}
    return [go.Scatter(x=np.arange(len(totals)), y=totals, mode="lines", name="traced", line=line)]
