"""Presets are data: one JSON file per model, GPU and cluster, each number with its source in the file."""

import json
from functools import cache
from importlib.resources import files
from typing import Any

from playbook.spec.rules import near

FOLDERS = ("models", "gpus", "clusters")


@cache
def names(folder: str) -> tuple[str, ...]:
    """Return the presets that a folder holds, in the order of their names."""
    entries = (files("playbook.spec.presets") / folder).iterdir()
    return tuple(sorted(e.name.removesuffix(".json") for e in entries if e.name.endswith(".json")))


@cache
def load(folder: str, name: str) -> dict[str, Any]:
    """Return what a preset's file holds, with its `name`."""
    content = json.loads(
        (files("playbook.spec.presets") / folder / f"{name}.json").read_text(encoding="utf-8")
    )
    return {"name": name, **content}


def like(folder: str, name: str) -> str:
    """Return the question that names the presets most like a name, as `near` does; its path does not count.

    Examples
    --------
    >>> like("models", "meta-llama/Llama-3.1-70B")
    '; did you mean the preset llama-3.1-70b?'
    """
    word, valid = name.strip().lower().rpartition("/")[2], names(folder)
    found = f"; did you mean {word}?" if word in valid else near(word, valid, closeness=0.75)
    return found.replace("mean ", "mean the preset ", 1)


def find(folder: str, name: str) -> dict[str, Any] | None:
    """Return the preset whose name equals `name` up to case, or None."""
    wanted = name.strip().lower()
    return load(folder, wanted) if wanted in names(folder) else None
