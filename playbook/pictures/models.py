"""Presets as a list to choose from: by family, each under the name that people know, with its size."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from playbook.spec import model, presets
from playbook.units import significant

SIZED = re.compile(r"(?<![\w.])[0-9.]+[bm]\b", re.IGNORECASE)
"""A size inside a title, such as 8B; the 8x7B of a mixture is none."""

GENERATION = re.compile(r"[a-z]+[ -][a-z]?([0-9.]+)(?=[ ,]|$)", re.IGNORECASE)
"""A title's first words, where a number that is no size follows the name, as in Llama 3.1 8B."""


@cache
def model_choices() -> tuple[tuple[str, str, str], ...]:
    """Name, words and group of every preset: groups by their names, in each the older and the smaller first.

    Examples
    --------
    >>> [words for _, words, group in model_choices() if group == "DeepSeek"]
    ['DeepSeek V2 Lite, 15.7B', 'DeepSeek V2, 236B', 'DeepSeek V3, 671B']
    """
    files = sorted((presets.load("models", name) for name in presets.names("models")), key=_place)
    return tuple((file["name"], _words(file), file["group"]) for file in files)


def _place(file: dict[str, Any]) -> tuple[str, float, int]:
    found = GENERATION.match(file["title"])
    return (
        file["group"].casefold(),
        float(found[1]) if found else float("inf"),
        model(file["name"]).parameters,
    )


def _words(file: dict[str, Any]) -> str:
    """Title of a preset, and the counted size behind it where it has none."""
    return file["title"] if SIZED.search(file["title"]) else f"{file['title']}, {_short(file['name'])}"


def _short(name: str) -> str:
    count = model(name).parameters
    unit, factor = next((u, f) for u, f in (("T", 10**12), ("B", 10**9), ("M", 10**6)) if count >= f)
    return f"{significant(count / factor)}{unit}"
