"""The template that figures share: our palette, quiet grid, the finding as title."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from widgets.palette import mix, palette


def colour(name: str) -> str:
    """Hex of a palette name of any group, light theme."""
    colours = palette()["light"]
    groups = (colours["ui"], colours["kinds"], colours["terms"], colours["axes"])
    return next(group[name] for group in groups if name in group)


def tint(name: str) -> str:
    """Pale form of a colour, for what is predicted."""
    return mix(colour(name), colour("background"), palette()["light"]["tint"])


def predicted(name: str) -> dict[str, Any]:
    """Marker of a predicted bar: tint with an outline."""
    return {"color": tint(name), "line": {"color": colour(name), "width": 1}}


def dress(figure: go.Figure, headline: Sequence[str], height: int) -> go.Figure:
    """Give a figure the finding as its title, our fonts and lines."""
    finding, rest = headline[0], headline[1] if len(headline) > 1 else ""
    title = f"<b>{finding}</b>" + (f"<br><span style='color:{colour('ink2')}'>{rest}</span>" if rest else "")
    axis = {
        "gridcolor": colour("grid"),
        "zeroline": False,
        "linecolor": colour("line"),
        "tickfont": {"size": 11},
    }
    figure.update_layout(
        title={"text": title, "font": {"size": 16, "color": colour("ink")}, "x": 0.01, "xanchor": "left"},
        font={"color": colour("ink"), "size": 12},
        paper_bgcolor=colour("background"),
        plot_bgcolor=colour("background"),
        barmode="overlay",
        height=height,
        margin={"t": 90, "l": 110, "r": 30, "b": 50},
        legend={"orientation": "h", "y": -0.12},
    )
    figure.update_xaxes(**axis)
    figure.update_yaxes(**axis)
    return figure


def legend_once(seen: set[str], name: str) -> Mapping[str, Any]:
    """Legend entry of a trace: shown for the first of its name."""
    first = name not in seen
    seen.add(name)
    return {"name": name, "legendgroup": name, "showlegend": first}


def line_at(figure: go.Figure, x: float, row: int, words: str = "") -> None:
    """Upright line of ink in a row of subplots: a limit, or an end."""
    line = {"color": colour("ink"), "width": 1.5}
    place: Any = {"row": row, "col": 1}  # plotly's own annotation wants text here, its code takes numbers
    figure.add_vline(x=x, line=line, annotation_text=words, **place)
