"""One schedule of a picture as plain data: packed blocks, why they waited, memory, idle time and formula."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from playbook.pictures.pipeline_formula import formula_words
from playbook.pictures.pipeline_forward import forward_formula
from playbook.pictures.pipeline_limit import Limit, over_spans
from playbook.pictures.pipeline_orders import TimedOrder
from playbook.pictures.pipeline_setting import Setting
from playbook.pictures.words import amount
from playbook.schedules.action import KINDS
from playbook.units import counted, percent

BESIDE, BEFORE, SENDS = 4, 8, 16
"""Flags in a block's packed kind: second of an overlapped pair, first of one, and a sender of a message."""


def lane(one: TimedOrder, setting: Setting, limit: Limit, scale: float) -> dict[str, Any]:
    """Blocks, memory and facts of one schedule.

    Parameters
    ----------
    one
        The schedule.
    setting
        What it was timed for.
    limit
        Most that a rank may hold.
    scale
        The view's unit of time, in that of the simulation.
    """
    timed, order, peaks = one.timed, one.order, one.peaks
    formula = forward_formula(one, setting) if one.forward else formula_words(one, setting)
    return {
        "name": order.name,
        "title": "Forward pass" if one.forward else one.title,
        "note": _note(one),
        "remark": _remark(one, formula),
        "formula": formula,
        "chunks": order.chunks,
        "depth": order.depth,
        "makespan": timed.makespan / scale,
        "counts": np.diff(timed.bounds).tolist(),
        "start": (timed.start / scale).astype("<f4").tobytes(),
        "duration": (timed.duration / scale).astype("<f4").tobytes(),
        "kind": _flagged_kinds(one).astype("u1").tobytes(),
        "stage": timed.stage.astype("<u2").tobytes(),
        "microbatch": timed.microbatch.astype("<u2").tobytes(),
        "waits": waits_of(one, scale),
        "curves": curves_of(one, scale, limit.scale) if one.model is not None else [],
        "peaks": [peak / limit.scale for peak in peaks],
        "over": over_spans(one, limit, scale),
        "end": one.bare(timed.makespan),
        "unit": "" if one.model is not None else ("slots" if one.forward and order.chunks == 1 else "units"),
        "idle": [
            percent(timed.idle_over_makespan),
            percent(timed.idle_over_ideal),
            one.long(timed.span_idle),
        ],
        "idle_words": one.long(timed.idle),
        "peak": [one.held(max(peaks)), _whose(peaks)],
        "message": message_words(one),
        "gap": _longest_gap(one, scale),
    }


def _flagged_kinds(one: TimedOrder) -> NDArray[np.int64]:
    """Kind of every action with its flags."""
    pair = one.timed.overlapped
    kinds = one.timed.kind | (BESIDE * pair) | (BEFORE * np.append(pair[1:], False))
    return kinds if one.model is None else kinds | SENDS * (one.model.message_bytes > 0)


def _unit(one: TimedOrder) -> str:
    if one.model is not None:
        return ""
    return "slots" if one.forward and one.order.chunks == 1 else "units"


def _whose(peaks: Sequence[float]) -> str:
    if len(set(peaks)) == 1:
        return "peak, all ranks"
    return f"peak, rank {peaks.index(max(peaks))}"


def _note(one: TimedOrder) -> str:
    order = one.order
    chunks = f"{order.chunks} chunks a rank" if order.chunks > 1 else counted(order.stages, "stage")
    if order.chains > 1:
        chunks = f"{order.chains} directions, two stages a rank"
    if one.forward:
        return f"{chunks}; digits are micro-batches, dashed slots are idle"
    return f"{chunks}; rank {one.worst} holds {one.holds(max(one.peaks))}"


def _placement(one: TimedOrder) -> str:
    """Which rank holds which stage, where that is not simply its own number."""
    order = one.order
    if order.placement == tuple(range(order.stages)):
        return ""
    words, ranks = order.placement_words, order.stages
    loss = {order.placement[stage] for stage in order.last_stages}
    said = sorted({0, *loss, ranks - 1})
    return f"{'; '.join(words[rank] for rank in said).capitalize()}."


def _remark(one: TimedOrder, formula: Mapping[str, Any]) -> str:
    """Where the formula fails, who holds what, what comes after."""
    return " ".join(part for part in (formula.get("remark", ""), _placement(one), _after(one)) if part)


def _after(one: TimedOrder) -> str:
    """What a model's step does after the last action."""
    return "" if one.model is None else f"Then the optimizer: {one.bare(one.model.after_s)}."


def waits_of(one: TimedOrder, scale: float) -> bytes:
    """Actions that their rank waited for, as four columns one after the other: the action and what it waited
    for (row numbers, 4 bytes), how long, and how much of it the message was under way (4-byte floats).

    Sparse, since most actions follow the one before at once.
    """
    timed = one.timed
    rows = np.flatnonzero((timed.waited > 1e-9) & (timed.cause >= 0))
    numbers = (rows.astype("<u4"), timed.cause[rows].astype("<u4"))
    times = ((timed.waited[rows] / scale).astype("<f4"), (timed.in_flight[rows] / scale).astype("<f4"))
    return b"".join(column.tobytes() for column in (*numbers, *times))


def curves_of(one: TimedOrder, scale: float, hold: float) -> list[dict[str, bytes]]:
    """Each rank's memory over time in the view's units; a view counts activations in A by itself."""
    curves = (one.curve(rank) for rank in range(one.order.stages))
    return [
        {"times": (times / scale).astype("<f4").tobytes(), "held": (held / hold).astype("<f4").tobytes()}
        for times, held in curves
    ]


def message_words(one: TimedOrder) -> str:
    """Bytes of a message between ranks, of a model."""
    return f"message {amount(one.message_bytes)}" if one.message_bytes else ""


def _longest_gap(one: TimedOrder, scale: float) -> dict[str, Any] | None:
    """The longest wait of rank 0 between two actions, and what it waits for.

    None if under a tenth of the step.
    """
    timed = one.timed
    rows = slice(timed.bounds[0], timed.bounds[1])
    start, end = timed.start[rows], timed.end[rows]
    waits = start[1:] - end[:-1]
    if not waits.size or waits.max() < 0.1 * timed.makespan:
        return None
    at = int(waits.argmax())
    kind, microbatch = KINDS[int(timed.kind[rows][at + 1])], int(timed.microbatch[rows][at + 1])
    words = f"waits for {kind}{microbatch}"
    return {"from": float(end[at]) / scale, "to": float(start[at + 1]) / scale, "words": words}
