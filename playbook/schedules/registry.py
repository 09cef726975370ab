"""The folder is the registry: every file here with a `PLAN` is a schedule."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from playbook.schedules.plan import Plan

FRAMEWORKS = ("textbook", "torch", "torchtitan", "megatron", "transformers", "deepspeed", "nanotron")
"""Frameworks whose conditions are known. `textbook` has none, `torchtitan` runs torch's schedules,
`transformers` has no pipeline of its own, and what `deepspeed` and `nanotron` refuse stands in their
policies."""

_RULES_OF = {"torch": "torch", "torchtitan": "torch", "megatron": "megatron"}


@cache
def plans() -> dict[str, Plan]:
    """Every schedule of the folder by name, in alphabetical order of names."""
    package = importlib.import_module("playbook.schedules")
    modules = (
        importlib.import_module(f"{package.__name__}.{entry.name}")
        for entry in pkgutil.iter_modules(package.__path__)
    )
    found = [module.PLAN for module in modules if hasattr(module, "PLAN")]
    return {plan.name: plan for plan in sorted(found, key=lambda plan: plan.name)}


def find_plan(name: str) -> Plan:
    """Look a schedule up by its name, in any case.

    Raises
    ------
    ValueError
        If there is none; the text lists those there are.
    """
    plan = plans().get(name.strip().lower().replace("_", "-"))
    if plan is None:
        raise ValueError(
            f"{name!r} is not a schedule; use one of {', '.join(plans())}, or a path ending in .csv"
        )
    return plan


def check_framework(plan: Plan, framework: str | None, ranks: int, microbatches: int, chunks: int) -> None:
    """Apply a framework's own condition.

    Raises
    ------
    ValueError
        If the framework cannot run this schedule at this size, or is not known.
    """
    if framework is None:
        return
    name = framework.strip().lower()
    if name not in FRAMEWORKS:
        raise ValueError(
            f"{framework!r} is no framework with known schedules; use one of {', '.join(FRAMEWORKS)}"
        )
    rules = _RULES_OF.get(name)
    if rules is None:
        return
    if rules not in plan.rules:
        able = [other.name for other in plans().values() if rules in other.rules]
        raise ValueError(f"{name} has no schedule {plan.name}; it runs {', '.join(able)}")
    objection = plan.rules[rules](ranks, microbatches, chunks)
    if objection:
        raise ValueError(objection)
