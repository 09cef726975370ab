"""Conditions that several schedules share: how many chunks, which costs."""

from __future__ import annotations

from math import isclose

from playbook.schedules.plan import ChunkCosts, Rule


def exactly(wanted: int, name: str, why: str, instead: str) -> Rule:
    """Refuse any other number of chunks a rank.

    Examples
    --------
    >>> exactly(2, "zbv", "one on the way down and one on the way up", "chunks=2")(4, 8, 3)
    'chunks=3: zbv gives a rank 2 chunks, one on the way down and one on the way up; use chunks=2'
    """
    word = "chunk" if wanted == 1 else "chunks"

    def refuse(ranks: int, microbatches: int, chunks: int) -> str | None:
        if chunks == wanted:
            return None
        return f"chunks={chunks}: {name} gives a rank {wanted} {word}, {why}; use {instead}"

    return refuse


def down_and_up(name: str) -> Rule:
    """Refuse anything but two chunks a rank, of which one is on the way down and one on the way up."""
    return exactly(2, name, "one on the way down and one on the way up", "chunks=2")


def equal_costs(costs: ChunkCosts) -> str | None:
    """The order is laid out for F = I = W."""
    f, i, w = costs.forward, costs.backward_input, costs.backward_weight
    if isclose(f, i) and isclose(i, w):
        return None
    return (
        f"forward={f:g}, backward-input={i:g} and backward-weight={w:g} differ: the order is laid out for "
        f"three equal costs, and the formula is exact only there; the simulation holds"
    )


def light_weights(costs: ChunkCosts) -> str | None:
    """A backward for the weights has to fit into the gap that it fills."""
    shorter = min(costs.forward, costs.backward_input)
    if costs.backward_weight <= shorter:
        return None
    return (
        f"backward-weight={costs.backward_weight:g} is more than {shorter:g}, the smaller of forward and "
        f"backward-input: it overfills the gap that the formula counts on; the simulation holds"
    )
