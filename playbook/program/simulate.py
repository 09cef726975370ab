"""A pipeline's order, run through the event engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from playbook.program.action_costs import Cost, Costs, border_delays, durations
from playbook.program.actions import Orders, needs_of, read_actions
from playbook.program.beside import ROUNDS, waiting_shares
from playbook.program.messages import Sending, run_actions
from playbook.program.simulation import Simulation
from playbook.spec import Link


def simulate(
    orders: Orders,
    placement: Sequence[int],
    *,
    forward: Cost = 1.0,
    backward_input: Cost = 1.0,
    backward_weight: Cost = 1.0,
    backward: Cost | None = None,
    overlap: Cost | None = None,
    recompute: Cost = 0.0,
    comm: Cost = 0.0,
    link: Link | Sequence[Link] | None = None,
    message_bytes: Cost = 0.0,
    blocking_send: bool = False,
    receive: str = "early",
    queue: bool = False,
    stragglers: Mapping[int, float] | None = None,
    beside: Mapping[str, Cost] | None = None,
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
        Cost of one chunk, in any one unit; or one cost for each stage, or for each stage of one chain.
    backward
        Cost of a fused backward; backward_input + backward_weight if not given.
    overlap
        Cost of a forward and a backward at the same time, by the stage of the forward, at least the longer of
        the two; the forward's cost and the backward's if not given.
    recompute
        Added to each backward that needs activations: the fused one, or the one for the inputs.
    comm
        Delay between a producer's end and the earliest start of its consumer on another rank; or one for each
        border between stages s and s + 1. It occupies neither rank.
    link, message_bytes
        Instead of `comm`: latency + bytes / bandwidth, each one for all borders or one for each border.
    blocking_send
        The sender's rank is occupied until its message has arrived.
    receive
        "early": posted ahead, so that a message travels as soon as it is sent. "deferred": posted only when
        the receiving rank is free for that action, so that the message travels from then. With
        `blocking_send` the two ranks then meet for every message.
    queue
        Each rank has one queue for all its sends and receives, served in order, one message at a time, so
        that a receive whose message comes late keeps the ready sends behind it. `receive` says where it
        stands: "early" where its sender runs in lock-step, as torch lowers an order; "deferred" when the
        rank is free.
    stragglers
        Rank → factor on all its costs; 2 is twice as slow.
    beside
        Costs, by the names above, of actions beside which a message of their rank waits all the time for its
        receiver; what is not there costs the same. An action beside which one waits for a part of the time
        costs so much more in that part.
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
    stages, depth = len(placement), len(placement) // chains
    if depth * chains != stages:
        raise ValueError(f"{stages} stages are no {chains} chains of equal length; use as many for each")
    actions = read_actions(orders, placement)
    alone: dict[str, Cost | None] = {
        "forward": forward,
        "backward_input": backward_input,
        "backward_weight": backward_weight,
        "backward": backward,
        "overlap": overlap,
        "recompute": recompute,
    }
    duration, recomputed = durations(actions, costs_of(alone), depth, stragglers or {})
    waiter, awaited = needs = needs_of(actions, depth)
    border = border_delays(stages, depth, comm, link, message_bytes)
    delays = border[np.minimum(actions.stage[waiter], actions.stage[awaited])]
    sending = Sending(blocking_send=blocking_send, receive=receive, queue=queue)
    start, messages = run_actions(actions, duration, needs, delays, sending)
    if beside:
        slow, _ = durations(actions, costs_of({**alone, **beside}), depth, stragglers or {})
        quick = duration
        for _ in range(ROUNDS):
            duration = quick + waiting_shares(actions, start, duration, messages) * (slow - quick)
            start, messages = run_actions(actions, duration, needs, delays, sending)
    return Simulation(
        start=start,
        duration=duration,
        rank=actions.rank,
        stage=actions.stage,
        microbatch=actions.microbatch,
        kind=actions.kind,
        overlapped=actions.second,
        recomputed=recomputed,
        messages=messages,
        bounds=tuple(np.searchsorted(actions.rank, range(len(orders) + 1)).tolist()),
    )


def costs_of(costs: Mapping[str, Cost | None]) -> Costs:
    """Costs by their names.

    Raises
    ------
    ValueError
        If a name is that of no cost.
    """
    names = Costs.__dataclass_fields__
    wrong = [name for name in costs if name not in names]
    if wrong:
        raise ValueError(f"beside has {wrong[0]!r}, which is no cost; costs are {', '.join(names)}")
    return Costs(**costs)  # type: ignore[arg-type]
