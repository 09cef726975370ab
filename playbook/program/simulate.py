"""A pipeline's order, run through the event engine."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from playbook.program.engine import run_streams
from playbook.program.simulation import Simulation
from playbook.schedules.action import KINDS, Action
from playbook.schedules.packed import B, F, I, Packed, W, is_beside, pack_order, unpack
from playbook.spec import Link

Cost = float | Sequence[float]
"""One number for all stages, or one for each."""

Orders = Sequence[Packed | Sequence[Action]]
"""Each rank's actions in the order in which it runs them."""


def simulate(
    orders: Orders,
    placement: Sequence[int],
    *,
    forward: Cost = 1.0,
    backward_input: Cost = 1.0,
    backward_weight: Cost = 1.0,
    backward: Cost | None = None,
    overlap: Cost | None = None,
    comm: Cost = 0.0,
    link: Link | None = None,
    message_bytes: Cost = 0.0,
    blocking_send: bool = False,
    chains: int = 1,
) -> Simulation:
    """Time each rank's order of actions.

    Parameters
    ----------
    orders
        Each rank's actions in the order in which it runs them, packed or not.
    placement
        Rank of each stage.
    forward, backward_input, backward_weight
        Cost of one chunk, in any one unit; or one cost for each stage.
    backward
        Cost of a fused backward; backward_input + backward_weight if not given.
    overlap
        Cost of a forward and a backward at the same time, by the stage of the forward; the forward's cost and
        the backward's if not given.
    comm
        Delay between a producer's end and the earliest start of its consumer on another rank; or one for each
        border between stages s and s + 1. It occupies neither rank.
    link, message_bytes
        Instead of `comm`: latency + bytes / bandwidth, with the bytes of one message or one for each border.
    blocking_send
        The sender's rank is occupied until its message has arrived.
    chains
        Directions of micro-batches: so many equal parts of the stages, with no message from one to the other.

    Raises
    ------
    ValueError
        If costs do not fit the stages, an action is missing, or the order deadlocks (the cycle is named).

    Notes
    -----
    F of a stage waits for F of the stage before, B or I for B or I of the stage after, W for its own I. An
    overlapped pair starts when both can, and gives both results at its end.
    """
    stages = len(placement)
    (rank, stage, kind, microbatch), second = _flatten(orders)
    _check_placement(rank, stage, np.asarray(placement))
    costs = _costs(stages, chains, forward, backward, backward_input, backward_weight)
    duration = costs[kind, stage]
    seconds = np.flatnonzero(second)
    firsts = seconds - 1
    both = duration[firsts] + duration[seconds]
    if overlap is not None:
        both = _per("overlap", overlap, stages, "stages", chains)[stage[firsts]]
    duration[firsts], duration[seconds] = both, 0.0
    waiter, awaited = _waits(stages // chains, stage, kind, microbatch, rank)
    border = _border_delays(stages, chains, comm, link, message_bytes)
    delays = np.where(rank[waiter] == rank[awaited], 0.0, border[np.minimum(stage[waiter], stage[awaited])])
    holds = np.zeros(rank.size)
    if blocking_send:
        np.maximum.at(holds, np.where(np.append(second, False)[awaited + 1], awaited + 1, awaited), delays)
    waiter = waiter - second[waiter]
    start = run_streams(
        duration,
        rank,
        (waiter, awaited),
        delays=delays,
        holds=holds,
        describe=lambda row: f"{stage[row]}{KINDS[kind[row]]}{microbatch[row]}",
        describe_stream="rank {}".format,
    )
    start[seconds], duration[seconds] = start[firsts], both
    return Simulation(
        start=start,
        duration=duration,
        rank=rank,
        stage=stage,
        microbatch=microbatch,
        kind=kind,
        overlapped=second,
        bounds=tuple(np.searchsorted(rank, range(len(orders) + 1)).tolist()),
    )


def _flatten(orders: Orders) -> tuple[tuple[NDArray[np.int64], ...], NDArray[np.bool_]]:
    """Rank, stage, kind and micro-batch of every action, rank by rank; and which is the second of a pair."""
    for rank, order in enumerate(orders):
        if len(order) == 0:
            raise ValueError(f"rank {rank} has no action; give every rank at least one, as in 0F0")
    if len(orders) == 0:
        raise ValueError(
            "the order has no rank; give each rank's actions, as in [[(0, 'F', 0), (0, 'B', 0)]]"
        )
    ranks = np.repeat(np.arange(len(orders)), [len(order) for order in orders])
    packed = np.concatenate([pack_order(order) for order in orders])
    stage, kind, microbatch = unpack(packed)
    second = is_beside(packed)
    firsts = np.append(False, (kind == F)[:-1] & ~second[:-1] & (ranks[1:] == ranks[:-1]))
    wrong = np.flatnonzero(second & ~(firsts & (kind == B)))
    if wrong.size:
        at = int(wrong[0])
        raise ValueError(
            f"{stage[at]}{KINDS[kind[at]]}{microbatch[at]} on rank {ranks[at]} cannot overlap the one before "
            f"it; a pair is a forward and then a backward of the same rank, as in (0F1;7B0)OVERLAP_F_B"
        )
    return (ranks, stage, kind, microbatch), second


def _check_placement(rank: NDArray[np.int64], stage: NDArray[np.int64], placement: NDArray[np.int64]) -> None:
    if int(stage.max()) >= placement.size:
        raise ValueError(f"stage {stage.max()} runs, but the placement has {placement.size} stages from 0")
    wrong = np.flatnonzero(placement[stage] != rank)
    if wrong.size:
        s, r = int(stage[wrong[0]]), int(rank[wrong[0]])
        raise ValueError(f"rank {r} runs stage {s}, but the placement gives it to rank {placement[s]}")


def _per(what: str, cost: Cost, count: int, places: str, chains: int = 1) -> NDArray[np.float64]:
    """One cost for each place from one number or a sequence; a sequence may be that of one chain."""
    values = np.asarray(cost, dtype=np.float64)
    if values.ndim == 1 and values.size * chains == count:
        values = np.tile(values, chains)
    if values.ndim > 1 or (values.ndim == 1 and values.size != count):
        raise ValueError(f"{what} has {values.size} values for {count} {places}; give one number, or {count}")
    if not np.isfinite(values).all() or (values < 0).any():
        raise ValueError(f"{what}={cost}; use finite numbers, 0 or more")
    return np.broadcast_to(values, (count,))


def _costs(
    stages: int, chains: int, forward: Cost, backward: Cost | None, i: Cost, w: Cost
) -> NDArray[np.float64]:
    """Kind × stage → cost."""
    named = {"forward": forward, "backward_input": i, "backward_weight": w}
    found = {what: _per(what, cost, stages, "stages", chains) for what, cost in named.items()}
    fused = found["backward_input"] + found["backward_weight"]
    if backward is not None:
        fused = _per("backward", backward, stages, "stages", chains)
    return np.stack((found["forward"], fused, found["backward_input"], found["backward_weight"]))


def _border_delays(
    stages: int, chains: int, comm: Cost, link: Link | None, message_bytes: Cost
) -> NDArray[np.float64]:
    """Delay over each border between stages s and s + 1; the last stage of a chain has an entry too."""
    borders = stages // chains - 1
    delay = _per("comm", comm, borders, "borders between stages")
    if link is not None:
        if np.any(delay):
            raise ValueError(f"comm={comm} and a link are both given; leave one of them out")
        size = _per("message_bytes", message_bytes, borders, "borders between stages")
        delay = np.array([link.seconds(one) for one in size.tolist()])
    return np.tile(np.append(delay, 0.0), chains)


def _waits(
    depth: int,
    stage: NDArray[np.int64],
    kind: NDArray[np.int64],
    microbatch: NDArray[np.int64],
    rank: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pairs (waiter, awaited).

    Waits for a row that stands earlier on the same rank hold anyway and are left out.
    """
    row_of = np.full((len(KINDS), int(stage.max()) + 2, int(microbatch.max()) + 1), -1, dtype=np.int64)
    rows = np.arange(stage.size)
    row_of[kind, stage, microbatch] = rows
    twice = np.flatnonzero(row_of[kind, stage, microbatch] != rows)
    if twice.size:
        row = int(twice[0])
        raise ValueError(f"{stage[row]}{KINDS[kind[row]]}{microbatch[row]} runs twice; each action runs once")
    backward_of = np.maximum(row_of[B], row_of[I])
    forward, through, weight = kind == F, (kind == B) | (kind == I), kind == W
    needs = (
        (forward & (stage % depth > 0), row_of[F], -1, "F"),
        (through & (stage % depth < depth - 1), backward_of, 1, "B or I"),
        (through, row_of[F], 0, "F"),
        (weight, row_of[I], 0, "I"),
    )
    waiters, awaiteds = [], []
    for who, table, step, word in needs:
        waiter = rows[who]
        awaited = table[stage[who] + step, microbatch[who]]
        if awaited.size and awaited.min() < 0:
            first = int(np.argmin(awaited))
            s, m = int(stage[who][first]), int(microbatch[who][first])
            raise ValueError(
                f"{s}{KINDS[int(kind[who][first])]}{m} needs {word} of micro-batch {m} on stage {s + step}, "
                f"which no rank runs"
            )
        far = (rank[waiter] != rank[awaited]) | (awaited > waiter)
        waiters.append(waiter[far])
        awaiteds.append(awaited[far])
    return np.concatenate(waiters), np.concatenate(awaiteds)
