"""One communication queue a rank, served in order: what stands in front keeps what could go.

torch.distributed.pipelining puts a rank's sends and receives on one stream. A receive that stands early there
and whose message comes late keeps the sends behind it, although they are ready (pytorch #172668, #188833;
`defer_pp_recv` moves receives back). Which message stands where is decided before the step runs.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from playbook.program.actions import Ints
from playbook.program.engine import run_streams
from playbook.program.message_ways import Blocks, Floats, run_deferred, run_early


def run_queued(blocks: Blocks, deferred: bool) -> tuple[Floats, Floats]:
    """A message travels when it is the first in the queues of both its ranks, and occupies both.

    Its place in the queues: where its sender stands in lock-step (`lowered_order`), or if `deferred` where it
    would travel without queues and with receives posted only when a rank is free for them.
    """
    order = deferred_order(blocks) if deferred else lowered_order(blocks)
    count, messages = blocks.lane.size, order.size
    sender, receiver = blocks.sender[order], blocks.receiver[order]
    numbers = count + np.arange(messages)
    waiter, awaited = [blocks.near[0], receiver, numbers], [blocks.near[1], numbers, sender]
    late, early = _neighbours(blocks.lane[sender], blocks.lane[receiver])
    waiter.append(count + late)
    awaited.append(count + early)
    if deferred:
        before = blocks.before[receiver]
        waiter.append(numbers[before >= 0])
        awaited.append(before[before >= 0])
    ranks = int(blocks.lane.max()) + 1
    start = run_streams(
        np.concatenate((blocks.length, blocks.way[order])),
        np.concatenate((blocks.lane, ranks + blocks.lane[sender])),
        (np.concatenate(waiter), np.concatenate(awaited)),
    )
    departure = np.empty(messages)
    departure[order] = start[count:]
    return start[:count], departure


def _neighbours(first: Ints, second: Ints) -> tuple[Ints, Ints]:
    """(later, earlier) messages that stand next to each other in the queue of a rank.

    Parameters
    ----------
    first, second
        The two ranks of each message, in the order of the queues.
    """
    message = np.tile(np.arange(first.size), 2)
    rank = np.concatenate((first, second))
    by = np.lexsort((message, rank))
    same = rank[by][1:] == rank[by][:-1]
    return message[by][1:][same], message[by][:-1][same]


def deferred_order(blocks: Blocks) -> Ints:
    """Messages by the time at which both ends would be free for them.

    Every block and way is taken a little longer, so that what needs another comes after it also where costs
    are zero.
    """
    little = 1e-9 * max(float(blocks.length.max()), float(blocks.way.max(initial=0.0)), 1e-300)
    _, departure = run_deferred(replace(blocks, length=blocks.length + little, way=blocks.way + little))
    return np.argsort(departure, kind="stable")


def lowered_order(blocks: Blocks) -> Ints:
    """Messages in the order in which a lock-step walk over the ranks sends them.

    As torch lowers a compute-only order: rank after rank runs its next action if its messages are there, puts
    the send behind it and the receive at the end of the peer's list; and again. A rank sits out the rounds
    that it spends on other entries (`lowering`).
    """
    run_early(blocks)  # names the cycle if there is one
    ranks = int(blocks.lane.max()) + 1
    missing = np.bincount(blocks.receiver, minlength=blocks.lane.size).tolist()
    sends: list[list[int]] = [[] for _ in missing]
    for message, sender in enumerate(blocks.sender.tolist()):
        sends[sender].append(message)
    receiver = blocks.receiver.tolist()
    at = np.searchsorted(blocks.lane, np.arange(ranks)).tolist()
    last = np.searchsorted(blocks.lane, np.arange(ranks), side="right").tolist()
    order: list[int] = []
    rounds = [0] * blocks.lane.size if blocks.rounds is None else blocks.rounds.tolist()
    busy = list(range(ranks))
    while busy:
        for rank in busy:
            block = at[rank]
            if rounds[block]:
                rounds[block] -= 1
                continue
            if missing[block]:
                continue
            for message in sends[block]:
                missing[receiver[message]] -= 1
            order += sends[block]
            at[rank] += 1
        busy = [rank for rank in busy if at[rank] < last[rank]]
    return np.array(order, dtype=np.int64)
