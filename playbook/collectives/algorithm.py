"""What a file of this folder declares: one algorithm, and how it does each collective it can do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from playbook.collectives.steps import Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """Steps in a row that do one thing, such as the reduce-scatter of a ring all-reduce."""

    words: str
    steps: Callable[[int], Sequence[Step]]
    """n → who sends what to whom, step by step."""
    load: Callable[[int], Sequence[int]]
    """n → chunks that the busiest rank sends in each step: the closed form, so that costs need no steps.

    The busiest rank is the same one in every step, or all ranks are equal.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """A way to move chunks between ranks."""

    name: str
    summary: str
    """One line for drop-downs and help."""
    source: str
    """Where it is described: authors, year."""
    phases: Mapping[str, tuple[Phase, ...]]
    """Operation → its phases in order."""
