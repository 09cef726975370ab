"""The colours of every picture: read once from ``views/palette.json`` and written as CSS, RGB or hex.

Hue says what a mark is (term, kind of action, mesh axis); fill and stroke say how its number is known.
``tests/widgets/test_palette.py`` holds the contrast and the distances under colour-vision deficiency.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

THEMES = ("light", "dark")
GROUPS = ("terms", "kinds", "axes")
_FILE = Path(__file__).parent / "views" / "palette.json"

# JupyterLab's own variable where it has one, so that a third-party theme is followed too.
_FOLLOWED = {"background": "--jp-layout-color0"}


@cache
def palette() -> dict[str, dict]:
    """Colours by theme, then group (``ui``, ``terms``, ``kinds``, ``axes``), then name.

    ``tint`` is a part of 1.
    """
    return json.loads(_FILE.read_text(encoding="utf-8"))


def mix(colour: str, ground: str, part: float) -> str:
    """Colour laid over a ground, as hex.

    Parameters
    ----------
    colour, ground
        Colours as ``#rrggbb``.
    part
        How much of `colour`, from 0 to 1.

    Examples
    --------
    >>> mix("#000000", "#ffffff", 0.5)
    '#808080'
    """
    pairs = zip(rgb(colour), rgb(ground), strict=True)
    return "#" + "".join(f"{round(a * part + b * (1 - part)):02x}" for a, b in pairs)


def rgb(colour: str) -> tuple[int, int, int]:
    """Red, green and blue of ``#rrggbb``, each 0 to 255."""
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def css() -> str:
    """Palette as CSS variables ``--pb-NAME`` scoped under ``.pb``, one block a theme."""
    return "".join(_block(theme) for theme in THEMES)


def _block(theme: str) -> str:
    colours = palette()[theme]
    lines = [f"--pb-{name}: {_value(name, colour)};" for name, colour in colours["ui"].items()]
    lines += [f"--pb-{name}: {colour};" for group in GROUPS for name, colour in colours[group].items()]
    lines.append(f"--pb-tint: {round(colours['tint'] * 100)}%;")
    selector = ".pb" if theme == "light" else ".pb[data-theme=dark]"
    return f"{selector} {{ {' '.join(lines)} color-scheme: {theme}; }}\n"


def _value(name: str, colour: str) -> str:
    return f"var({_FOLLOWED[name]}, {colour})" if name in _FOLLOWED else colour
