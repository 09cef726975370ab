"""Frameworks; the folder is the registry: one file each, with the `POLICY` that says what its code keeps and
sends."""

import importlib
import pkgutil
from functools import cache

from playbook.program.policy import Policy
from playbook.spec.rules import choice


@cache
def policies() -> dict[str, Policy]:
    """Every framework of the folder by name."""
    modules = [
        importlib.import_module(f"{__name__}.{entry.name}") for entry in pkgutil.iter_modules(__path__)
    ]
    return {module.POLICY.name: module.POLICY for module in modules if hasattr(module, "POLICY")}


def policy(name: str) -> Policy:
    """Return a framework's policy by name, ignoring case.

    Raises
    ------
    ValueError
        If there is none; the message lists those that there are.
    """
    return policies()[choice("framework", name, policies())]
