"""How a picture becomes a run of real ranks: real messages, and sleeps as long as the actions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from playbook.pictures.pipeline_orders import TimedOrder
from playbook.pictures.words import short
from playbook.schedules import plans
from playbook.schedules.action import KINDS
from playbook.spec import model
from playbook.units import THIN

SHORTEST_S = 0.02
"""Shortest emulated action.

Below it the operating system's own delays show (2 to 4 ms add 34 %, 20 ms 0.9 %).
"""
PATIENCE_S = 1.5
"""A step that is over sooner is stretched, to at most twice the shortest action.

The delays then matter less.
"""
LONGEST_S = 120.0
"""A run that would take longer is refused: nobody waits for it beside a picture."""

_LEVERS = {"F": "forward", "B": "backward", "I": "backward_input", "W": "backward_weight"}


def unit_seconds(orders: Sequence[TimedOrder]) -> float:
    """Seconds that a unit of the picture's clock lasts on real ranks, the same for all its schedules.

    The shortest action takes `SHORTEST_S`, or longer where the steps are over soon.

    Raises
    ------
    ValueError
        If an action costs nothing, only forwards are shown, or the run would take minutes.
    """
    if any(one.forward for one in orders):
        raise ValueError("ranks run whole steps; choose the whole step to run it")
    shortest = min(float(one.timed.duration.min()) for one in orders)
    if shortest <= 0:
        raise ValueError("an action of no cost cannot be run; give F, I and W above 0")
    longest = max(one.timed.makespan for one in orders)
    stretch = min(2.0, max(1.0, PATIENCE_S * shortest / (SHORTEST_S * longest)))
    unit_s = stretch * SHORTEST_S / shortest
    total_s = unit_s * sum(one.timed.makespan for one in orders)
    if total_s > LONGEST_S:
        raise ValueError(
            f"at {short(1000 * SHORTEST_S)} ms for the shortest action a run takes {short(total_s, 2)} s; "
            "use fewer micro-batches, ranks or schedules to run it"
        )
    return unit_s


def emulation_levers(one: TimedOrder, unit_s: float) -> dict[str, Any]:
    """Levers of a run of the strategy `pp` whose actions last as long as the picture says.

    Parameters
    ----------
    one
        The schedule.
    unit_s
        Seconds of a unit.

    Notes
    -----
    The model is as small as its stages allow: only its messages are real.
    """
    order = one.order
    small = replace(
        model("toy-15m"),
        name="toy-pipeline",
        layers=order.depth,
        hidden=64,
        heads=2,
        kv_heads=1,
        head_dim=32,
        ffn=96,
        vocabulary=256,
    )
    return {
        "model": small,
        "sequence": 8,
        "micro_batch": 1,
        "microbatches": order.microbatches,
        "chunks": order.chunks,
        "unit_s": unit_s,
        **({"schedule": order.name} if order.name in plans() else {"order": order}),
        **stage_costs(one),
        **({"latency": one.hop} if one.hop else {}),
    }


def stage_costs(one: TimedOrder) -> dict[str, float | list[float]]:
    """Cost of each kind of action by stage, as the picture draws them; one number where all are equal.

    Raises
    ------
    ValueError
        If an action has two costs, which a run by stages cannot tell apart.
    """
    timed = one.timed
    pair = timed.overlapped | np.append(timed.overlapped[1:], False)
    kinds = [(_LEVERS[kind], (timed.kind == code) & ~pair) for code, kind in enumerate(KINDS)]
    first = np.append(timed.overlapped[1:], False)
    costs = {}
    for lever, mine in (*kinds, ("overlap", first)):
        if mine.any():
            costs[lever] = _by_stage(one, lever, mine)
    # A whole backward is I + W to the levers where it has no number of its own.
    if "backward" in costs:
        costs.setdefault("backward_input", costs["backward"])
        costs.setdefault("backward_weight", costs["backward"])
    return costs


def _by_stage(one: TimedOrder, lever: str, mine: np.ndarray) -> float | list[float]:
    stage, duration = one.timed.stage[mine], one.timed.duration[mine]
    values = np.full(len(one.order.placement), float(duration.mean()))
    values[stage] = duration
    if not np.allclose(values[stage], duration, rtol=1e-6):
        raise ValueError(
            f"{one.title}: the actions of kind {lever} of one stage differ in cost; they cannot be run"
        )
    return float(values[0]) if np.allclose(values, values[0], rtol=1e-9) else values.tolist()


def run_note(orders: Sequence[TimedOrder]) -> str:
    """What Run does and how long it takes, in words."""
    try:
        unit_s = unit_seconds(orders)
    except ValueError as refused:
        return f"{str(refused)[0].upper()}{str(refused)[1:]}."
    total = unit_s * sum(one.timed.makespan for one in orders)
    if orders[0].model is not None:
        shortest = min(float(one.timed.duration.min()) for one in orders)
        pace = f"the shortest action lasts {short(1000 * unit_s * shortest)} ms, {short(total, 2)} s in all"
    else:
        pace = f"{short(1000 * unit_s)} ms a unit, {short(total, 2)} s in all"
    return (
        f"Real processes and messages; each action is a sleep of its time in the picture: {pace}."
    ).replace(" s in", f"{THIN}s in")
