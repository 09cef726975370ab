"""Parallel strategies; the folder is the registry: one folder each, with the pass over a block in `plan.py`.

`plan.py` (no torch) says what the strategy does to a block, `ranks.py` (torch) runs it on real ranks by hand
and by the library, `lesson.md` explains it.
"""

import importlib
import importlib.util
import pkgutil
from functools import cache

from playbook.program.passes import Plan
from playbook.spec import Layout
from playbook.spec.rules import choice

PREDICTED_ONLY = ("cp", "ep", "etp", "dp_replicate")
"""Degrees of a layout whose strategies have no code for ranks yet."""


@cache
def plans() -> dict[str, Plan]:
    """Every strategy of the folder by name."""
    names = [entry.name for entry in pkgutil.iter_modules(__path__) if entry.ispkg]
    found = [importlib.import_module(f"{__name__}.{name}.plan").PLAN for name in sorted(names)]
    return {plan.name: plan for plan in found}


def plan(name: str) -> Plan:
    """Return a strategy's pass by name, ignoring case.

    Raises
    ------
    ValueError
        If there is none; the message lists those that there are.
    """
    return plans()[choice("strategy", name, plans())]


def runnable() -> tuple[str, ...]:
    """Names of the strategies that run on real ranks: those with a `ranks.py`. Nothing is imported to find
    out."""
    return tuple(name for name in plans() if importlib.util.find_spec(f"{__name__}.{name}.ranks"))


def refuse_predicted_only(name: str) -> None:
    """Refuse a strategy that has a plan but no code for ranks yet.

    Raises
    ------
    ValueError
        With those that run, and what tells of this one.
    """
    known = name.strip().lower()
    if known in plans() and known not in runnable():
        raise ValueError(
            f"strategy={name!r} is predicted only, it has no code for ranks yet; those that run are "
            f"{', '.join(runnable())}; `playbook memory` tells of {known}"
        )


def refuse_predicted_layout(layout: Layout) -> None:
    """Refuse a layout that no code for ranks builds, for what runs or traces it.

    Raises
    ------
    ValueError
        With what tells of it, and what would work.
    """
    for name in PREDICTED_ONLY:
        degree = getattr(layout, name)
        if degree > 1:
            raise ValueError(
                f"{name}={degree} is predicted only, it has no code for ranks yet; `playbook memory` tells "
                f"of it, and {name}=1 runs"
            )
