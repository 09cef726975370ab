"""What a message that waits for its receiver costs the computation beside it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from playbook.program.actions import Actions
from playbook.program.messages import Messages

Floats = NDArray[np.float64]

ROUNDS = 3
"""Times that shares and durations are worked out from each other; further ones change a makespan by less than
a thousandth."""


def waiting_shares(actions: Actions, start: Floats, duration: Floats, messages: Messages) -> Floats:
    """Part of each action's time, 0 to 1, during which a result of its own rank has not arrived elsewhere.

    Notes
    -----
    A send of NCCL is a kernel: from the moment at which the result is there until its receiver has taken it,
    it keeps some of the GPU's processors.
    """
    share = np.zeros_like(duration)
    sent, arrived = start[messages.sender] + duration[messages.sender], messages.arrival
    for rank in range(actions.ranks):
        of_rank = actions.rank[messages.sender] == rank
        if not of_rank.any():
            continue
        rows = np.flatnonzero(actions.rank == rank)
        begin, end = _merged(sent[of_rank], arrived[of_rank])
        before = _covered(begin, end, start[rows])
        covered = _covered(begin, end, start[rows] + duration[rows]) - before
        share[rows] = covered / np.where(duration[rows] > 0, duration[rows], 1.0)
    return share


def _merged(begin: Floats, end: Floats) -> tuple[Floats, Floats]:
    """Intervals in order, cut so that none covers what an earlier one does."""
    order = np.argsort(begin, kind="stable")
    begin, end = begin[order], np.maximum.accumulate(end[order])
    begin[1:] = np.maximum(begin[1:], end[:-1])
    return begin, end


def _covered(begin: Floats, end: Floats, moments: Floats) -> Floats:
    """Time up to each moment that lies in one of some disjoint intervals."""
    total = np.concatenate(([0.0], np.cumsum(end - begin)))
    at = np.searchsorted(begin, moments, side="right")
    inside = np.where(at > 0, np.maximum(end[np.maximum(at, 1) - 1] - moments, 0.0), 0.0)
    return total[at] - inside
