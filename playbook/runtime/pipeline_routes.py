"""Which way each message of a schedule goes, and by when a rank has to expect it. Needs no torch."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from playbook.program.schedule import Schedule
from playbook.schedules import Action

NOWHERE = -1
"""Tag of what does not travel."""

Block = tuple[Action, ...]
"""One action, or the two of an overlapped pair."""

Channel = tuple[bool, int | None, int | None]
"""Whether forward, sender and receiver: messages of one channel arrive in the order in which they go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The way of one message, from the rank that sends or to the rank that receives.

    Parameters
    ----------
    action
        Whose input or result it is.
    sender, receiver
        Ranks in the group of the pipeline; None at an end of the pipeline, and for W, which passes nothing.
    own
        The one of them that this rank is.
    tag
        Tells it from every other message of the step.
    forward
        Whether it carries hidden states; if not, their gradient.
    group, group_peer
        Process group that carries it, and the other rank's number there.
    """

    action: Action
    sender: int | None = None
    receiver: int | None = None
    own: int = 0
    tag: int = NOWHERE
    forward: bool = True
    group: Any = None
    group_peer: int = 0

    @property
    def local(self) -> bool:
        """Whether both stages are on this rank."""
        return self.tag != NOWHERE and self.sender == self.receiver

    @property
    def travels(self) -> bool:
        """Whether it goes from rank to rank."""
        return self.tag != NOWHERE and self.sender != self.receiver

    @property
    def peer(self) -> int | None:
        """The other rank in the group of the pipeline."""
        return self.receiver if self.own == self.sender else self.sender

    @property
    def channel(self) -> Channel:
        """Which way it goes, between which ranks."""
        return self.forward, self.sender, self.receiver

    @property
    def address(self) -> dict[str, Any]:
        """Arguments of isend or irecv: the group, the other rank's number in it, the tag."""
        peer = "group_dst" if self.own == self.sender else "group_src"
        return {"group": self.group, peer: self.group_peer, "tag": self.tag}

    def over(self, group: Any) -> "Route":
        """Send it over a process group: the whole pipeline's, or one of its two ranks."""
        if not self.travels:
            return self
        assert self.peer is not None
        pair = group.size() == 2
        return replace(self, group=group, group_peer=group.rank() ^ 1 if pair else self.peer)


def route_in(schedule: Schedule, action: Action) -> Route:
    """Return the way of an action's input: forward from the stage before, backward from the one after."""
    ends = schedule.first_stages if action.kind == "F" else schedule.last_stages
    if action.kind == "W" or action.stage in ends:
        return Route(action=action)
    return _route(schedule, action, action.stage - _onward(action), action.stage, action.stage)


def route_out(schedule: Schedule, action: Action) -> Route:
    """Return the way of what an action makes: forward to the stage after, backward to the one before."""
    ends = schedule.last_stages if action.kind == "F" else schedule.first_stages
    if action.kind == "W" or action.stage in ends:
        return Route(action=action)
    return _route(schedule, action, action.stage, action.stage + _onward(action), action.stage)


def _onward(action: Action) -> int:
    return 1 if action.kind == "F" else -1


def _route(schedule: Schedule, action: Action, start: int, end: int, here: int) -> Route:
    owner, stages, forward = schedule.placement, len(schedule.placement), action.kind == "F"
    return Route(
        action=action,
        sender=owner[start],
        receiver=owner[end],
        own=owner[here],
        tag=(action.microbatch * (stages + 2) + start + 1) * 2 + (not forward),
        forward=forward,
    )


def blocks_of(order: Sequence[Action]) -> tuple[Block, ...]:
    """Take an order apart into actions that run alone and pairs that run together.

    Examples
    --------
    >>> [len(block) for block in blocks_of((Action(0, "F", 0), Action(0, "F", 1), Action(1, "B", 0, True)))]
    [1, 2]
    """
    blocks: list[Block] = []
    for action in order:
        if action.beside and blocks:
            blocks[-1] = (*blocks[-1], action)
        else:
            blocks.append((action,))
    return tuple(blocks)


def expected_by(schedule: Schedule, rank: int, blocks: Sequence[Block]) -> tuple[tuple[Action, ...], ...]:
    """For each block, the actions whose messages a rank has to post a receive for before it runs.

    Notes
    -----
    In each channel in the order in which the other rank sends: NCCL hands messages over in that order. No
    earlier than needed: on a GPU a receive that waits takes processors from the compute beside it.
    """
    queues: dict[Any, list[Action]] = {}
    for sender, order in enumerate(schedule.orders):
        for action in order:
            route = route_out(schedule, action)
            if route.travels and route.receiver == rank and sender == route.sender:
                queues.setdefault(route.channel, []).append(action)
    consumer = {
        route.tag: action for action in schedule.orders[rank] if (route := route_in(schedule, action)).travels
    }
    posted: set[Action] = set()

    def due(action: Action) -> Iterable[Action]:
        route = route_in(schedule, action)
        if not route.travels or action in posted:
            return
        queue = queues[route.channel]
        while action not in posted:
            first = consumer[route_out(schedule, queue.pop(0)).tag]
            posted.add(first)
            yield first

    return tuple(tuple(post for action in block for post in due(action)) for block in blocks)
