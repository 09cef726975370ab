"""The folder is the registry: every file here with an `ALGORITHM` is an algorithm."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from playbook.collectives.algorithm import Algorithm


@cache
def algorithms() -> dict[str, Algorithm]:
    """Every algorithm of the folder by name, in alphabetical order of names."""
    package = importlib.import_module("playbook.collectives")
    modules = (
        importlib.import_module(f"{package.__name__}.{entry.name}")
        for entry in pkgutil.iter_modules(package.__path__)
    )
    found = [module.ALGORITHM for module in modules if hasattr(module, "ALGORITHM")]
    return {algorithm.name: algorithm for algorithm in sorted(found, key=lambda algorithm: algorithm.name)}


def find_algorithm(name: str, operation: str) -> Algorithm:
    """Look up an algorithm that can do an operation; case and `_` for `-` do not matter.

    Raises
    ------
    ValueError
        If there is none; the text lists those there are for the operation.
    """
    algorithm = algorithms().get(name.strip().lower().replace("_", "-"))
    if algorithm is None or operation not in algorithm.phases:
        able = ", ".join(one.name for one in algorithms().values() if operation in one.phases)
        raise ValueError(f"{name!r} is not an algorithm for {operation}; use one of {able}")
    return algorithm
