"""Ways of sending: what a message waits for before it travels, and whom it keeps while it does.

Each way is rows and waits for the event engine, and gives the starts of the blocks and the departures of the
messages.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from playbook.program.actions import Ints
from playbook.program.engine import run_streams

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Blocks:
    """What a rank runs without a break, and the results that blocks need of each other."""

    lane: Ints
    """Rank of each block."""
    length: Floats
    name: Callable[[int], str]
    near: tuple[Ints, Ints]
    """(waiter, awaited) on one rank, where the order does not already see to it."""
    sender: Ints
    receiver: Ints
    way: Floats
    rounds: Ints | None = None
    """Rounds that a library's lowering spends before each block; none if not given."""

    @property
    def before(self) -> Ints:
        """The block before each on its rank; −1 for the first."""
        first = np.append(True, self.lane[1:] != self.lane[:-1])
        return np.where(first, -1, np.arange(self.lane.size) - 1)

    def run(self, waiter: Ints, awaited: Ints, delays: Floats, holds: Floats | float = 0.0) -> Floats:
        """Start of each block under waits that are given on top of `near`."""
        waits = tuple(np.concatenate(pair) for pair in zip(self.near, (waiter, awaited), strict=True))
        every = np.concatenate((np.zeros(self.near[0].size), delays))
        return run_streams(
            self.length,
            self.lane,
            (waits[0], waits[1]),
            delays=every,
            holds=holds,
            describe=self.name,
            describe_stream="rank {}".format,
        )


def run_early(blocks: Blocks) -> tuple[Floats, Floats]:
    """A message travels as soon as it is sent, and keeps nobody."""
    start = blocks.run(blocks.receiver, blocks.sender, blocks.way)
    return start, (start + blocks.length)[blocks.sender]


def run_holding(blocks: Blocks) -> tuple[Floats, Floats]:
    """A message travels as soon as it is sent, and keeps its sender until it has arrived."""
    holds = np.zeros(blocks.lane.size)
    np.maximum.at(holds, blocks.sender, blocks.way)
    start = blocks.run(blocks.receiver, blocks.sender, blocks.way, holds)
    return start, (start + blocks.length)[blocks.sender]


def run_deferred(blocks: Blocks) -> tuple[Floats, Floats]:
    """A message travels when it is sent and its receiver is free for it."""
    before = blocks.before[blocks.receiver]
    later = before >= 0
    start = blocks.run(
        np.append(blocks.receiver, blocks.receiver[later]),
        np.append(blocks.sender, before[later]),
        np.append(blocks.way, blocks.way[later]),
    )
    end = start + blocks.length
    free = np.where(later, end[before], 0.0)
    return start, np.maximum(end[blocks.sender], free)


def run_meeting(blocks: Blocks) -> tuple[Floats, Floats]:
    """Sender and receiver meet: a message travels when both are free for it, and keeps both.

    Rows of no length stand for the two ends: a *receive* before a block that needs messages, which runs when
    its rank is free, and a *send* after a block whose results are needed, which ends when they have arrived.
    """
    sends, receives = (np.zeros(blocks.lane.size, dtype=bool) for _ in range(2))
    sends[blocks.sender] = receives[blocks.receiver] = True
    widths = 1 + sends.astype(np.int64) + receives
    begin = np.cumsum(widths) - widths
    core = begin + receives
    length = np.zeros(int(widths.sum()))
    length[core] = blocks.length
    of = np.repeat(np.arange(blocks.lane.size), widths)
    near = tuple(core[side] for side in blocks.near)
    received, sent = begin[blocks.receiver], core[blocks.sender] + 1

    def describe(row: int) -> str:
        role = np.sign(row - core[of[row]])
        return ("the receive of ", "", "the send of ")[role + 1] + blocks.name(of[row])

    with_ends = Blocks(
        lane=blocks.lane[of],
        length=length,
        name=describe,
        near=(near[0], near[1]),
        sender=core[blocks.sender],
        receiver=core[blocks.receiver],
        way=blocks.way,
    )
    rows = with_ends.run(
        np.concatenate((with_ends.receiver, with_ends.receiver, sent, sent)),
        np.concatenate((with_ends.sender, received, with_ends.sender, received)),
        np.tile(blocks.way, 4),
    )
    start = rows[core]
    return start, np.maximum((start + blocks.length)[blocks.sender], rows[received])
