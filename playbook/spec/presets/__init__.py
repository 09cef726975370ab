"""Presets are data: one JSON file per model, GPU and cluster, each number with its source in the file."""

import json
from functools import cache
from importlib.resources import files
from typing import Any

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


def find(folder: str, name: str) -> dict[str, Any] | None:
    """Return the preset whose name equals `name` up to case, or None."""
    wanted = name.strip().lower()
    return load(folder, wanted) if wanted in names(folder) else None
