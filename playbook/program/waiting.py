"""What each action of a pipeline waited for, and how much of that a message was under way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from playbook.program.actions import Ints
from playbook.program.messages import Messages

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Waiting:
    """The idle time before each action, one entry an action; the second of a pair has none of its own."""

    cause: Ints
    """Row of the action waited for last; −1 if it started when its rank was free."""
    message: Ints
    """Place of the message waited for last among the messages; −1 likewise."""
    waited: Floats
    """Idle time before it."""
    in_flight: Floats
    """Part of it during which that message was under way."""


def waiting_of(
    start: Floats, duration: Floats, rank: Ints, overlapped: NDArray[np.bool_], messages: Messages
) -> Waiting:
    """Tell what held each action.

    Notes
    -----
    A block starts at the latest of three: its rank is free, its last message is there, and where senders are
    kept the last message of the block before it has arrived. Where that one left late, the cause is what its
    receiver ran until then.
    """
    first, block = np.flatnonzero(~overlapped), np.cumsum(~overlapped) - 1
    begin, end, lane = start[first], (start + duration)[first], rank[first]
    leads = np.append(True, lane[1:] != lane[:-1])
    free = np.where(leads, 0.0, np.append(0.0, end[:-1]))
    message = _latest(block[messages.receiver], messages.arrival, first.size)
    leave, arrive = _under_way(message, messages, free, begin)
    flight = arrive - leave
    if messages.keeps_sender:
        sent = _latest(block[messages.sender], messages.arrival, first.size)
        sent = np.where(leads, -1, np.append(-1, sent[:-1]))
        own_leave, own_arrive = _under_way(sent, messages, free, begin)
        both = np.minimum(arrive, own_arrive) - np.maximum(leave, own_leave)
        flight = flight + (own_arrive - own_leave) - np.maximum(both, 0.0)
        message = np.where((sent >= 0) & (own_arrive > arrive), sent, message)
    idle = begin > free
    message = np.where(idle, message, -1)
    cause = _causes(message, messages, block, first, end)
    return Waiting(
        cause=_at_rows(cause, first, start.size, -1),
        message=_at_rows(message, first, start.size, -1),
        waited=_at_rows(begin - free, first, start.size, 0.0),
        in_flight=_at_rows(np.where(idle, np.minimum(flight, begin - free), 0.0), first, start.size, 0.0),
    )


def _latest(block: Ints, arrival: Floats, blocks: int) -> Ints:
    """The message of each block that arrives last; −1 for none."""
    found = np.full(blocks, -1, dtype=np.int64)
    found[block] = np.arange(block.size)
    if (found[block] == np.arange(block.size)).all():
        return found
    by = np.argsort(arrival, kind="stable")
    found[block[by]] = by  # the last of equal places stays
    return found


def _under_way(message: Ints, messages: Messages, free: Floats, begin: Floats) -> tuple[Floats, Floats]:
    """When the message of each block travels, cut to the wait before the block; empty where there is none."""
    if not messages.way.size:
        return free, free
    none = message < 0
    leave = np.where(none, free, np.clip(messages.departure[message], free, begin))
    return leave, np.where(none, free, np.clip(messages.arrival[message], free, begin))


def _causes(message: Ints, messages: Messages, block: Ints, first: Ints, end: Floats) -> Ints:
    """Row that each block waited for: the sender, or what kept the receiver of its own message."""
    if not messages.way.size:
        return message
    sender, receiver = messages.sender[message], block[messages.receiver[message]]
    own = receiver != np.arange(message.size)
    late = own & (messages.departure[message] > end[block[sender]])
    return np.where(message < 0, -1, np.where(late, first[receiver - 1], sender))


def _at_rows(values: NDArray[Any], first: Ints, rows: int, otherwise: float) -> NDArray[Any]:
    """One value a row from one a block."""
    found = np.full(rows, otherwise, dtype=values.dtype)
    found[first] = values
    return found
