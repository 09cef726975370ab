"""Rounds that `torch.distributed.pipelining` spends on what is no computation when it lowers an order.

Lowering walks over the ranks in rounds, one entry of each rank's list a round, and puts a receive at the end
of its rank's list as it stands when the sender's turn comes. Before that, entries were put into the lists
that gather a stage's weights, give them back, and reduce its gradients, also where nothing is sharded. They
move receives behind later computation: on four H200 interleaved 1F1B of two chunks was 5 % longer for it.

Source: `_add_unshard_reshard`, `_add_reduce_grad` and `_add_send_recv` of torch 2.11 and 2.13,
torch/distributed/pipelining/schedules.py.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from playbook.program.actions import Actions, Ints
from playbook.schedules.packed import B, W

HELD = 3
"""Stages of a rank whose weights are together at a time: those that come next."""


def rounds_before(actions: Actions) -> Ints:
    """Rounds before each block, single action or overlapped pair, that its rank spends on other entries."""
    found: list[int] = []
    block = actions.block
    for rank in range(actions.ranks):
        rows = np.flatnonzero(actions.rank == rank)
        at = (block[rows] - block[rows[0]]).tolist()
        stages: list[list[int]] = [[] for _ in range(at[-1] + 1)]
        for place, stage in zip(at, actions.stage[rows].tolist(), strict=True):
            stages[place].append(stage)
        reduced = [0] * (len(stages) + 1)
        for place in last_gradients(at, actions.stage[rows], actions.kind[rows]):
            reduced[place + 1] += 1
        changes = held_changes(stages)
        found += [a + b for a, b in zip(changes, reduced[:-1], strict=True)]
    return np.array(found, dtype=np.int64)


def held_changes(stages: Sequence[Sequence[int]]) -> list[int]:
    """How many stages' weights are gathered or given back before each block.

    Parameters
    ----------
    stages
        Stages of each block of one rank, in its order.

    Examples
    --------
    Both stages are gathered at once, and one is given back when only the other is left:

    >>> held_changes([[0], [4], [0]])
    [2, 0, 1]
    """
    coming: list[set[int]] = []
    line: list[int] = []
    for own in reversed(stages):
        line = [*own, *(stage for stage in line if stage not in own)]
        coming.append(set(line[: max(HELD, len(own))]))
    coming.reverse()
    return [len(now ^ then) for now, then in zip(coming, [set(), *coming[:-1]], strict=True)]


def last_gradients(at: Sequence[int], stage: Ints, kind: Ints) -> list[int]:
    """Block in which each stage of a rank makes its last gradients of weights."""
    last = {s: place for place, s, k in zip(at, stage.tolist(), kind.tolist(), strict=True) if k in (B, W)}
    return list(last.values())
