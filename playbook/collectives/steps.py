"""Messages of a step, and what the ranks hold after it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from playbook.collectives.operation import State


class Transfer(NamedTuple):
    """One chunk on its way; all transfers of a step read what was held before the step."""

    src: int
    dst: int
    chunk: int
    reduce: bool
    """Whether the receiver adds it to what it holds; else it overwrites."""


Step = tuple[Transfer, ...]


def run_step(state: State, step: Step) -> State:
    """Apply one step to who holds what.

    Raises
    ------
    AssertionError
        If a rank sends what it does not hold, or a rank's data would be added twice: the algorithm is wrong.
    """
    after = [list(chunks) for chunks in state]
    for src, dst, chunk, reduce in step:
        sent, held = state[src][chunk], after[dst][chunk]
        assert sent is not None, f"rank {src} sends chunk {chunk}, which it does not hold"
        if reduce:
            assert held is not None, f"rank {dst} adds to chunk {chunk}, which it does not hold"
            assert not sent & held, f"chunk {chunk} on rank {dst}: {sorted(sent & held)} would count twice"
            after[dst][chunk] = held | sent
        else:
            after[dst][chunk] = sent
    return tuple(map(tuple, after))


def run_steps(state: State, steps: Sequence[Step]) -> tuple[State, ...]:
    """Return the state before the first step and after each."""
    states = [state]
    for step in steps:
        states.append(run_step(states[-1], step))
    return tuple(states)
