"""Messages between the ranks of a pipeline: when each is under way, and whom it keeps.

An action, or an overlapped pair, is a *block*: it starts when its rank is free and all that it needs is
there. A result that is needed on another rank is a message.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from playbook.program.actions import Actions, Ints
from playbook.program.lowering import rounds_before
from playbook.program.message_queue import run_queued
from playbook.program.message_ways import (
    Blocks,
    Floats,
    run_deferred,
    run_early,
    run_holding,
    run_meeting,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """How messages are sent."""

    blocking_send: bool = False
    """The sender's rank is occupied until its message has arrived."""
    receive: str = "early"
    """"early": a receive is posted ahead, so that a message travels as soon as it is sent. "deferred": only
    when the receiving rank is free for the action that needs it."""
    queue: bool = False
    """Each rank has one queue for all that it sends and receives, served in order, one message at a time."""

    def __post_init__(self) -> None:
        if self.receive not in ("early", "deferred"):
            raise ValueError(f"receive={self.receive!r}; use 'early' or 'deferred'")
        if self.queue and self.blocking_send:
            raise ValueError("queue=True sends beside the computation; leave it or blocking_send=True out")

    @property
    def deferred(self) -> bool:
        """Whether a message waits until its receiver is free."""
        return self.receive == "deferred"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Messages:
    """Every result that passes from one rank to another."""

    sender: Ints
    """Row of the action whose result it is."""
    receiver: Ints
    """Row of the action that needs it."""
    departure: Floats
    """When it begins to travel."""
    way: Floats
    """Time that it is under way."""
    keeps_sender: bool
    """Whether the sender's rank waits for its arrival."""

    @property
    def arrival(self) -> Floats:
        """When it is there."""
        return self.departure + self.way


def run_actions(
    actions: Actions, duration: Floats, needs: tuple[Ints, Ints], delays: Floats, sending: Sending
) -> tuple[Floats, Messages]:
    """Start of every action, and when its messages travel.

    Parameters
    ----------
    actions, duration
        Every action; both of a pair have the duration of the pair.
    needs
        (waiter, awaited): rows whose result a row needs.
    delays
        Of each need: how long its message is under way; not looked at where both are on one rank.
    sending
        How messages are sent.

    Raises
    ------
    ValueError
        If blocks, sends and receives wait for each other in a cycle; the text names it.
    """
    block, first = actions.block, np.flatnonzero(~actions.second)
    waiter, awaited = needs
    far = actions.rank[waiter] != actions.rank[awaited]
    blocks = Blocks(
        lane=actions.rank[first],
        length=duration[first],
        name=lambda at: _name(actions, int(first[at])),
        near=(block[waiter[~far]], block[awaited[~far]]),
        sender=block[awaited[far]],
        receiver=block[waiter[far]],
        way=delays[far],
        rounds=rounds_before(actions) if sending.queue and not sending.deferred else None,
    )
    start, departure = _way_of(sending)(blocks)
    messages = Messages(
        sender=awaited[far],
        receiver=waiter[far],
        departure=departure,
        way=blocks.way,
        keeps_sender=sending.blocking_send,
    )
    return start[block], messages


def _name(actions: Actions, row: int) -> str:
    pair = row + 1 < actions.second.size and actions.second[row + 1]
    return f"({actions.name(row)};{actions.name(row + 1)})" if pair else actions.name(row)


def _way_of(sending: Sending) -> Callable[[Blocks], tuple[Floats, Floats]]:
    """Starts of the blocks and departures of the messages, by the way of sending."""
    if sending.queue:
        return lambda blocks: run_queued(blocks, sending.deferred)
    if sending.blocking_send and sending.deferred:
        return run_meeting
    if sending.deferred:
        return run_deferred
    return run_holding if sending.blocking_send else run_early
