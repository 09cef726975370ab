"""Curves over two logarithmic axes as a plain SVG, readable in the light and in the dark."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 760, 440
LEFT, RIGHT, TOP, BOTTOM = 70, 250, 60, 50
COLOURS = ("#777777", "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00")
"""Okabe and Ito's colours, which colour-blind readers tell apart; grey for what is compared with."""

STYLE = (
    "text{font:12px sans-serif;fill:#444}.grid{stroke:#8884}.title{font-weight:600}"
    "@media (prefers-color-scheme:dark){text{fill:#ccc}}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Points of one curve, all above 0, from left to right."""

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    dashed: bool = False
    joined: bool = True
    """Whether a line goes through the points."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A logarithmic axis from one power of ten to another."""

    low: int
    high: int
    start: float
    """Pixel of the low end."""
    end: float

    @classmethod
    def over(cls, values: Sequence[float], start: float, end: float) -> Axis:
        """Span the powers of ten around some values."""
        low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
        return cls(low=low, high=max(high, low + 1), start=start, end=end)

    def at(self, value: float) -> float:
        """Pixel of a value."""
        share = (math.log10(value) - self.low) / (self.high - self.low)
        return round(self.start + share * (self.end - self.start), 1)

    @property
    def ticks(self) -> list[float]:
        """Powers of ten."""
        return [10.0**power for power in range(self.low, self.high + 1)]


def log_plot(curves: Sequence[Curve], title: str, x_name: str, y_name: str) -> str:
    """Draw curves with points, each named at its right end."""
    x = Axis.over([value for curve in curves for value in curve.x], LEFT, WIDTH - RIGHT)
    y = Axis.over([value for curve in curves for value in curve.y], HEIGHT - BOTTOM, TOP)
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        f"<title>{escape(title)}</title><style>{STYLE}</style>",
        f'<text class="title" x="{LEFT}" y="22">{escape(title)}</text>',
        *_grid(x, y),
        f'<text x="{middle}" y="{HEIGHT - 12}" text-anchor="middle">{escape(x_name)}</text>',
        f'<text x="{LEFT - 60}" y="{TOP - 14}">{escape(y_name)}</text>',
        *(_line(curve, x, y, colour) for curve, colour in zip(curves, COLOURS, strict=False)),
        *_names(curves, x, y),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _grid(x: Axis, y: Axis) -> list[str]:
    parts = []
    for value in x.ticks:
        at = x.at(value)
        parts.append(f'<line class="grid" x1="{at}" x2="{at}" y1="{y.end}" y2="{y.start}"/>')
        parts.append(f'<text x="{at}" y="{y.start + 18}" text-anchor="middle">{tick(value)}</text>')
    for value in y.ticks:
        at = y.at(value)
        parts.append(f'<line class="grid" x1="{x.start}" x2="{x.end}" y1="{at}" y2="{at}"/>')
        parts.append(f'<text x="{x.start - 8}" y="{at + 4}" text-anchor="end">{value:g}</text>')
    return parts


def tick(value: float) -> str:
    """A power of ten as text."""
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def _line(curve: Curve, x: Axis, y: Axis, colour: str) -> str:
    points = [(x.at(a), y.at(b)) for a, b in zip(curve.x, curve.y, strict=True)]
    path = " ".join(f"{a},{b}" for a, b in points)
    dash = ' stroke-dasharray="5 4"' if curve.dashed else ""
    dots = "".join(f'<circle cx="{a}" cy="{b}" r="3" fill="{colour}"/>' for a, b in points)
    if not curve.joined:
        return dots
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.6"{dash}/>{dots}'


def _names(curves: Sequence[Curve], x: Axis, y: Axis) -> list[str]:
    """Names at the right, in the order of the ends and far enough apart to be read."""
    by_height = sorted(zip(curves, COLOURS, strict=False), key=lambda pair: y.at(pair[0].y[-1]))
    parts, lowest = [], 0.0
    for curve, colour in by_height:
        lowest = max(lowest + 16, y.at(curve.y[-1]))
        end = x.at(curve.x[-1])
        parts.append(
            f'<line x1="{end}" y1="{y.at(curve.y[-1])}" x2="{x.end + 8}" y2="{lowest}" '
            f'stroke="{colour}" stroke-opacity="0.5"/>'
        )
        parts.append(
            f'<text x="{x.end + 12}" y="{lowest + 4}" style="fill:{colour}">{escape(curve.label)}</text>'
        )
    return parts
