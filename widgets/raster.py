"""Pictures as PNG, drawn with Pillow: what a viewer without a kernel shows, and a stranger sees first.

Drawn once when a widget is displayed, never on an update. Positions are in the views' own pixels, at twice
the resolution; the light palette on white suits both themes of most viewers.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageFont

from widgets.palette import mix, palette

SCALE = 2
WIDTH = 880
MARGIN = 16
_FACES = {False: "DejaVuSans.ttf", True: "DejaVuSans-Bold.ttf"}
_FOLDERS = ("", "/usr/share/fonts/truetype/dejavu/", "/usr/share/fonts/dejavu-sans-fonts/", "/Library/Fonts/")

# Pillow's own font has none of these; DejaVu has all.
_PLAIN = str.maketrans(
    {
        "\u2009": " ",
        "−": "-",
        "·": "|",
        "→": "to",
        "✓": "ok",
        "✕": "x",
        "≥": ">=",
        "×": "x",
        "α": "a",
        "β": "b",
        "µ": "u",
        "…": "...",
        "◇": "",
        "●": "",
        "Ψ": "P",
    }
)


@cache
def _font(size: float, bold: bool) -> tuple[ImageFont.FreeTypeFont | ImageFont.ImageFont, bool]:
    """A face of that size, and whether it has every character that pictures use."""
    for folder in _FOLDERS:
        try:
            return ImageFont.truetype(folder + _FACES[bold], round(size * SCALE)), True
        except OSError:
            continue
    return ImageFont.load_default(size * SCALE), False


class Sheet:
    """A white sheet to draw on, in view pixels.

    Parameters
    ----------
    height
        Of the picture, without the headline and the margins.
    headline
        The finding and its second half.
    kick
        Small line above it.
    """

    def __init__(self, height: float, headline: Sequence[str], kick: str) -> None:
        self.colours: dict[str, Any] = palette()["light"]
        self.top = MARGIN + 20 + 22 * len(self._wrapped(headline)) + 14
        size = (round((WIDTH + 2 * MARGIN) * SCALE), round((self.top + height + MARGIN) * SCALE))
        self._image = Image.new("RGB", size, self.colour("background"))
        self._draw = ImageDraw.Draw(self._image)
        self._origin = (MARGIN, 0.0)
        self.text(0, MARGIN + 10, kick, 11, "ink2")
        for row, words in enumerate(self._wrapped(headline)):
            self.text(0, MARGIN + 34 + 22 * row, words, 15, bold=row == 0)
        self._origin = (MARGIN, self.top)

    def _wrapped(self, headline: Sequence[str]) -> list[str]:
        lines: list[str] = []
        for part in headline:
            line = ""
            for word in part.split(" "):
                if line and self.width_of(f"{line} {word}", 15, True) > WIDTH:
                    lines.append(line)
                    line = word
                else:
                    line = f"{line} {word}" if line else word
            lines += [line] if line else []
        return lines

    def colour(self, name: str) -> str:
        """Hex of a palette name of any group."""
        groups: Iterable[Mapping[str, str]] = (
            self.colours["ui"],
            self.colours["kinds"],
            self.colours["terms"],
            self.colours["axes"],
        )
        return next((group[name] for group in groups if name in group), name)

    def tint(self, name: str) -> str:
        """Pale form of a colour, for what is predicted."""
        return mix(self.colour(name), self.colour("background"), self.colours["tint"])

    def _point(self, x: float, y: float) -> tuple[float, float]:
        left, top = self._origin
        return (x + left) * SCALE, (y + top) * SCALE

    def _at(self, *points: float) -> list[float]:
        x, y = self._origin
        return [(value + (y if place % 2 else x)) * SCALE for place, value in enumerate(points)]

    def box(
        self, x: float, y: float, w: float, h: float, fill: str = "", edge: str = "", thick: float = 1
    ) -> None:
        """Rectangle; `fill` and `edge` are palette names or hex, empty for none."""
        if w <= 0 or h <= 0:
            return
        shown = {"fill": self.colour(fill) if fill else None, "outline": self.colour(edge) if edge else None}
        self._draw.rectangle(
            self._at(x, y, max(x + 0.5, x + w - 0.5), max(y + 0.5, y + h - 0.5)),
            width=max(1, round(thick * SCALE)) if edge else 0,
            **shown,
        )

    def line(
        self,
        points: Sequence[tuple[float, float]],
        colour: str,
        thick: float = 1,
        dash: tuple[float, float] | None = None,
    ) -> None:
        """Line through points, dashed if asked."""
        flat = [self._point(*point) for point in points]
        if dash is None:
            self._draw.line(flat, fill=self.colour(colour), width=max(1, round(thick * SCALE)), joint="curve")
            return
        for piece in _dashes(flat, [part * SCALE for part in dash]):
            self._draw.line(piece, fill=self.colour(colour), width=max(1, round(thick * SCALE)))

    def shape(self, points: Sequence[tuple[float, float]], fill: str, edge: str = "") -> None:
        """Filled polygon."""
        self._draw.polygon(
            [self._point(*point) for point in points],
            fill=self.colour(fill),
            outline=self.colour(edge) if edge else None,
        )

    def dot(self, x: float, y: float, r: float, fill: str, edge: str = "") -> None:
        """Filled circle."""
        self._draw.ellipse(
            self._at(x - r, y - r, x + r, y + r),
            fill=self.colour(fill),
            outline=self.colour(edge) if edge else None,
            width=SCALE,
        )

    def text(
        self,
        x: float,
        y: float,
        words: str,
        size: float = 11,
        colour: str = "ink",
        anchor: str = "l",
        bold: bool = False,
    ) -> None:
        """Words with their baseline at y; anchor l, m or r."""
        face, whole = _font(size, bold)
        self._draw.text(
            self._point(x, y),
            words if whole else words.translate(_PLAIN),
            font=face,
            fill=self.colour(colour),
            anchor=f"{anchor}s" if whole else None,
        )

    def width_of(self, words: str, size: float, bold: bool = False) -> float:
        """Width of words in view pixels."""
        return _font(size, bold)[0].getlength(words) / SCALE

    def table(self, y: float, table: Mapping[str, Any]) -> None:
        """The comparison table, formula to difference, from y down."""
        columns = {"formula": 460, "traced": 600, "measured": 740, "difference": WIDTH}
        self.text(0, y + 14, table["head"], 10.5, "ink2")
        for name, right in columns.items():
            self.text(right, y + 14, name, 10.5, "ink2", "r")
        self.line([(0, y + 20), (WIDTH, y + 20)], "line")
        for place, row in enumerate(table["rows"]):
            base = y + 38 + 24 * place
            self.text(0, base, row["label"], 11)
            for name, right in columns.items():
                value = row.get(name)
                if name == "measured" and row.get("by"):
                    value = f"{row['by']} {value}"
                self.text(
                    right,
                    base,
                    value if isinstance(value, str) else "—",
                    11,
                    "ink",
                    "r",
                    bold=name == "difference",
                )
            self.line([(0, base + 8), (WIDTH, base + 8)], "grid")

    def png(self) -> bytes:
        """The sheet as PNG, in a palette of 128 colours: half the bytes, and no picture here has more."""
        out = io.BytesIO()
        self._image.quantize(128, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE).save(
            out, "PNG", optimize=False
        )
        return out.getvalue()


def table_height(table: Mapping[str, Any]) -> float:
    """Height of `Sheet.table`."""
    return 28 + 24 * len(table["rows"])


def _dashes(points: Sequence[tuple[float, ...]], dash: Sequence[float]) -> list[list[tuple[float, float]]]:
    """Cut a line into the drawn parts of a dash pattern (on, off)."""
    pieces, on, left = [], True, dash[0]
    for (x0, y0), (x1, y1) in zip(points[:-1], points[1:], strict=True):
        length = ((x1 - x0) ** 2 + (y1 - y0) ** 2) ** 0.5
        at = 0.0
        while at < length:
            step = min(left, length - at)
            if on:
                a, b = at / length, (at + step) / length
                pieces.append(
                    [(x0 + a * (x1 - x0), y0 + a * (y1 - y0)), (x0 + b * (x1 - x0), y0 + b * (y1 - y0))]
                )
            at, left = at + step, left - step
            if left <= 1e-9:
                on, left = not on, dash[1 if on else 0]
    return pieces


def font_folder() -> Path | None:
    """Folder of the DejaVu fonts, None where they are missing and Pillow's own face stands in."""
    return next(
        (Path(folder) for folder in _FOLDERS if folder and (Path(folder) / _FACES[False]).exists()), None
    )
