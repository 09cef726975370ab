"""What the actions of a pipeline cost, and how long a message between two stages is under way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real

import numpy as np
from numpy.typing import NDArray

from playbook.program.actions import Actions
from playbook.schedules.packed import B, F, W
from playbook.spec import Link
from playbook.units import counted

Cost = float | Sequence[float]
"""One number for all stages, or one for each."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Costs of one chunk, in any one unit; one number for all stages, or one for each."""

    forward: Cost = 1.0
    backward_input: Cost = 1.0
    backward_weight: Cost = 1.0
    backward: Cost | None = None
    """A fused backward; backward_input + backward_weight if None."""
    overlap: Cost | None = None
    """A forward and a backward at the same time, by the stage of the forward; both, one after the other,
    if None."""
    recompute: Cost = 0.0
    """Added to the backward that needs activations (fused, or for the inputs): it makes them again first."""


def durations(
    actions: Actions, costs: Costs, depth: int, stragglers: Mapping[int, float]
) -> tuple[Floats, Floats]:
    """Duration of every action, and the part at its start that recomputes.

    Both actions of an overlapped pair carry the duration of the pair.

    Raises
    ------
    ValueError
        If costs do not fit the stages, a pair is shorter than one of its two, or a straggler is no rank.
    """
    stages, stage = actions.stages, actions.stage
    table = _kind_by_stage(costs, stages, depth)
    duration = table[actions.kind, stage]
    again = per_place("recompute", costs.recompute, stages, depth, "stages")
    recomputed = np.where((actions.kind == F) | (actions.kind == W), 0.0, again[stage])
    duration = duration + recomputed
    seconds = np.flatnonzero(actions.second)
    both = duration[seconds - 1] + duration[seconds]
    if costs.overlap is not None:
        both = _together(costs.overlap, actions, table, depth) + recomputed[seconds]
    duration[seconds - 1] = duration[seconds] = both
    if not stragglers:
        return duration, recomputed
    slower = _factors(actions.ranks, stragglers)[actions.rank]
    return duration * slower, recomputed * slower


def _kind_by_stage(costs: Costs, stages: int, depth: int) -> Floats:
    names = ("forward", "backward_input", "backward_weight")
    forward, through, weight = (
        per_place(name, getattr(costs, name), stages, depth, "stages") for name in names
    )
    fused = through + weight
    if costs.backward is not None:
        fused = per_place("backward", costs.backward, stages, depth, "stages")
    return np.stack((forward, fused, through, weight))


def _together(overlap: Cost, actions: Actions, table: Floats, depth: int) -> Floats:
    """Cost of each overlapped pair; no shorter than the longer of its two, which still has to run."""
    given = _spread("overlap", overlap, actions.stages, depth, "stages")
    seconds = np.flatnonzero(actions.second)
    first, second = actions.stage[seconds - 1], actions.stage[seconds]
    forward, backward, cost = table[F, first], table[B, second], given[first]
    least = np.maximum(forward, backward)
    if not seconds.size and not (np.isfinite(given) & (given >= 0)).all():
        forward, backward, cost = table[F], table[B], given
        least = np.maximum(forward, backward)
    # Not a hair less: costs in seconds come from sums and quotients.
    wrong = np.flatnonzero(~(cost >= least * (1 - 1e-9)) | ~np.isfinite(cost))
    if wrong.size:
        at = int(wrong[np.argmax(least[wrong])])
        raise ValueError(
            f"overlap={overlap}: a forward of {forward[at]:g} and a backward of {backward[at]:g} at the same "
            f"time take no less than the longer of them; use {least[at]:g} or more "
            f"({forward[at] + backward[at]:g} is one after the other)"
        )
    return cost if seconds.size else np.zeros(0)


def _factors(ranks: int, stragglers: Mapping[int, float]) -> Floats:
    if not isinstance(stragglers, Mapping):
        raise TypeError(f"stragglers={stragglers!r} is no mapping; use rank: factor, as in {{2: 1.5}}")
    factors = np.ones(ranks)
    for rank, factor in stragglers.items():
        if isinstance(rank, bool) or not hasattr(rank, "__index__"):
            raise TypeError(
                f"stragglers={stragglers!r}: rank {rank!r} is no whole number; use 0 to {ranks - 1}"
            )
        if not isinstance(factor, Real):
            raise TypeError(f"straggler {rank}: factor {factor!r} is no number; 2 is twice as slow")
        if not 0 <= rank < ranks:
            raise ValueError(
                f"straggler {rank}: the pipeline has {counted(ranks, 'rank')}; use 0 to {ranks - 1}"
            )
        if not 0 < factor < float("inf"):
            raise ValueError(f"straggler {rank}: factor {factor} must be above 0; 2 is twice as slow")
        factors[rank] = factor
    return factors


def border_delays(
    stages: int, depth: int, comm: Cost, link: Link | Sequence[Link] | None, message_bytes: Cost
) -> Floats:
    """Delay over each border between stages s and s + 1, at place s; 0 at the last stage of a chain.

    Raises
    ------
    ValueError
        If there are not as many delays, links or messages as borders, or a delay and a link are both given.
    """
    chains, per_chain = stages // depth, depth - 1
    where = "borders between stages"
    delay = per_place("comm", comm, per_chain * chains, per_chain, where)
    size = per_place("message_bytes", message_bytes, per_chain * chains, per_chain, where)
    if link is not None:
        if np.any(delay):
            raise ValueError(f"comm={comm} and a link are both given; leave one of them out")
        links = [link] if isinstance(link, Link) else list(link)
        if not all(isinstance(one, Link) for one in links):
            raise TypeError(f"link={link!r} is no Link; use a Link, or one for each border")
        latency = [one.latency_s for one in links]
        rate = [one.bandwidth_bytes_per_s for one in links]
        if isinstance(link, Link):
            latency, rate = latency[0], rate[0]
        delay = per_place("link", latency, size.size, per_chain, where)
        delay = delay + size / per_place("link", rate, size.size, per_chain, where)
    return np.pad(delay.reshape(chains, per_chain), ((0, 0), (0, 1))).ravel()


def per_place(what: str, cost: Cost, count: int, chain: int, places: str) -> Floats:
    """One cost for each place, from one number or a sequence; a sequence may be that of one chain.

    Raises
    ------
    ValueError
        If there are not as many, or one is no number, negative or not finite.
    """
    values = _spread(what, cost, count, chain, places)
    if not np.isfinite(values).all() or (values < 0).any():
        raise ValueError(f"{what}={cost}; use finite numbers, 0 or more")
    return values


def _spread(what: str, cost: Cost, count: int, chain: int, places: str) -> Floats:
    try:
        values = np.asarray(cost, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"{what}={cost!r} is no number; give one number, or {count} for {count} {places}"
        ) from None
    if values.ndim == 1 and values.size == chain and chain:
        values = np.tile(values, count // chain)
    if values.ndim > 1 or (values.ndim == 1 and values.size != count):
        raise ValueError(
            f"{what} has {counted(values.size, 'value')} for {count} {places}; give one number, or {count}"
        )
    return np.broadcast_to(values, (count,))
