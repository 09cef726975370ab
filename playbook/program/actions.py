"""The actions of all ranks as flat arrays, and which of them needs which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from playbook.schedules.action import KINDS, Action
from playbook.schedules.packed import B, F, I, Packed, W, is_beside, pack_order, unpack

Orders = Sequence[Packed | Sequence[Action]]
"""Each rank's actions in the order in which it runs them."""

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Actions:
    """Every action, rank by rank, in each rank's own order."""

    rank: Ints
    stage: Ints
    kind: Ints
    """Codes into `KINDS`."""
    microbatch: Ints
    second: NDArray[np.bool_]
    """Whether it is the second of an overlapped pair."""
    stages: int
    ranks: int

    @property
    def block(self) -> Ints:
        """Place of each action among the blocks: a block is a single action or an overlapped pair."""
        return np.cumsum(~self.second) - 1

    def name(self, row: int) -> str:
        """An action as text, as in 2F0."""
        return f"{self.stage[row]}{KINDS[self.kind[row]]}{self.microbatch[row]}"


def read_actions(orders: Orders, placement: Sequence[int]) -> Actions:
    """Lay each rank's actions one after the other.

    Raises
    ------
    ValueError
        If a rank has none, runs a stage of another, or a pair is no forward and backward.
    """
    if len(orders) == 0:
        raise ValueError(
            "the order has no rank; give each rank's actions, as in [[(0, 'F', 0), (0, 'B', 0)]]"
        )
    for rank, order in enumerate(orders):
        if len(order) == 0:
            raise ValueError(f"rank {rank} has no action; give every rank at least one, as in 0F0")
    ranks = np.repeat(np.arange(len(orders)), [len(order) for order in orders])
    packed = np.concatenate([pack_order(order) for order in orders])
    stage, kind, microbatch = unpack(packed)
    found = Actions(
        rank=ranks,
        stage=stage,
        kind=kind,
        microbatch=microbatch,
        second=is_beside(packed),
        stages=len(placement),
        ranks=len(orders),
    )
    _check_pairs(found)
    _check_placement(found, np.asarray(placement))
    return found


def _check_pairs(actions: Actions) -> None:
    rank, kind, second = actions.rank, actions.kind, actions.second
    if not second.any():
        return
    firsts = np.append(False, (kind == F)[:-1] & ~second[:-1] & (rank[1:] == rank[:-1]))
    wrong = np.flatnonzero(second & ~(firsts & (kind == B)))
    if wrong.size:
        at = int(wrong[0])
        raise ValueError(
            f"{actions.name(at)} on rank {rank[at]} cannot overlap the one before it; "
            f"a pair is a forward and then a backward of the same rank, as in (0F1;7B0)OVERLAP_F_B"
        )


def _check_placement(actions: Actions, placement: Ints) -> None:
    rank, stage = actions.rank, actions.stage
    if int(stage.max()) >= placement.size:
        raise ValueError(f"stage {stage.max()} runs, but the placement has {placement.size} stages from 0")
    wrong = np.flatnonzero(placement[stage] != rank)
    if wrong.size:
        s, r = int(stage[wrong[0]]), int(rank[wrong[0]])
        raise ValueError(f"rank {r} runs stage {s}, but the placement gives it to rank {placement[s]}")


def needs_of(actions: Actions, depth: int) -> tuple[Ints, Ints]:
    """Who needs whose result: pairs (waiter, awaited) of actions.

    What stands earlier on the same rank is there anyway and left out.

    Parameters
    ----------
    actions
        Every action.
    depth
        Stages of one chain.

    Raises
    ------
    ValueError
        If an action runs twice, or one that is needed never.
    """
    stage, kind, microbatch, rank = actions.stage, actions.kind, actions.microbatch, actions.rank
    row_of = _row_of(actions)
    backward_of = np.maximum(row_of[B], row_of[I])
    forward, through, weight = kind == F, (kind == B) | (kind == I), kind == W
    needs = (
        (forward & (stage % depth > 0), row_of[F], -1, "F"),
        (through & (stage % depth < depth - 1), backward_of, 1, "B or I"),
        (through, row_of[F], 0, "F"),
        (weight, row_of[I], 0, "I"),
    )
    block = actions.block
    waiters, awaiteds = [], []
    for who, table, step, word in needs:
        waiter = np.flatnonzero(who)
        awaited = table[stage[waiter] + step, microbatch[waiter]]
        if awaited.size and awaited.min() < 0:
            row = int(waiter[np.argmin(awaited)])
            raise ValueError(
                f"{actions.name(row)} needs {word} of micro-batch {microbatch[row]} "
                f"on stage {stage[row] + step}, which no rank runs"
            )
        far = (rank[waiter] != rank[awaited]) | (block[awaited] >= block[waiter])
        waiters.append(waiter[far])
        awaiteds.append(awaited[far])
    return np.concatenate(waiters), np.concatenate(awaiteds)


def _row_of(actions: Actions) -> Ints:
    """Kind × stage × micro-batch → row, −1 where there is none."""
    stage, kind, microbatch = actions.stage, actions.kind, actions.microbatch
    row_of = np.full((len(KINDS), int(stage.max()) + 2, int(microbatch.max()) + 1), -1, dtype=np.int64)
    rows = np.arange(stage.size)
    row_of[kind, stage, microbatch] = rows
    twice = np.flatnonzero(row_of[kind, stage, microbatch] != rows)
    if twice.size:
        raise ValueError(f"{actions.name(int(twice[0]))} runs twice; each action runs once")
    return row_of
