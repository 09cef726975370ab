"""The folder is the registry: every file here with a `measure` is a benchmark."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable

from benchmarks.figure import Figure


def benchmarks() -> dict[str, Callable[..., list[Figure]]]:
    """Every benchmark of the folder by the name of its file."""
    package = importlib.import_module("benchmarks")
    names = [entry.name for entry in pkgutil.iter_modules(package.__path__) if entry.name != "__main__"]
    modules = {name: importlib.import_module(f"benchmarks.{name}") for name in sorted(names)}
    return {name: module.measure for name, module in modules.items() if hasattr(module, "measure")}
