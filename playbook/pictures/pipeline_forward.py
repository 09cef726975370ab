"""The forward pass alone: the grid of micro-batches over ranks with which every explanation begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from playbook.pictures.pipeline_orders import TimedOrder, timed_order
from playbook.pictures.pipeline_setting import Setting
from playbook.pictures.words import micro_batches, row, short
from playbook.program.schedule import Schedule
from playbook.schedules.action import KINDS
from playbook.schedules.packed import pack, unpack
from playbook.units import counted, percent


def forward_orders(orders: Sequence[TimedOrder], setting: Setting) -> tuple[TimedOrder, ...]:
    """The forwards of each schedule, those that are the same only once."""
    most = max(one.order.chunks for one in orders)
    found: dict[tuple[int, ...], TimedOrder] = {}
    for one in orders:
        found.setdefault(one.order.placement, _timed(one.order, setting, most))
    return tuple(found.values())


@lru_cache(maxsize=16)
def _timed(order: Schedule, setting: Setting, most: int) -> TimedOrder:
    return replace(timed_order(_only_forwards(order), setting, most), forward=True)


def _only_forwards(order: Schedule) -> Schedule:
    forwards = []
    for packed in order.packed:
        stage, kind, microbatch = unpack(packed)
        mine = kind == KINDS.index("F")
        forwards.append(pack(stage[mine], KINDS.index("F"), microbatch[mine]))
    return replace(order, packed=tuple(forwards))


def plain_grid(one: TimedOrder, setting: Setting) -> bool:
    """Whether the grid is the textbook's: equal stages, one a rank, in order, no latency."""
    return setting.plain and one.order.placement == tuple(range(one.order.stages))


def forward_formula(one: TimedOrder, setting: Setting) -> dict[str, Any]:
    """The textbook's idle share of the forward pass, as a fraction; empty where it has none."""
    if not plain_grid(one, setting):
        return {}
    p, m = one.order.stages, one.order.microbatches
    text = f"(p − 1)/(m + p − 1) = {p - 1}/{m + p - 1}"
    return {"text": text, "whole": text, "holds": True, "remark": ""}


def forward_headline(one: TimedOrder, setting: Setting) -> list[str]:
    """How many slots the forward pass takes, how many of them a rank idles, and what more would do."""
    p, m, timed = one.order.stages, one.order.microbatches, one.timed
    if not plain_grid(one, setting):
        share = percent(timed.idle_over_makespan)
        return [
            f"The forward pass of {micro_batches(m)} ends at {short(timed.makespan)} units.",
            f"A rank idles {share} of it.",
        ]
    slots, idle = m + p - 1, p - 1
    if not idle:
        return [f"One rank runs {micro_batches(m)} in {counted(slots, 'slot')} and is never idle.", ""]
    more = 4 * p if m < 4 * p else 2 * m
    return [
        f"{micro_batches(m)} over {counted(p, 'rank')} take {counted(slots, 'slot')}, and every rank idles "
        f"{idle} of them: {idle}/{slots} = {percent(idle / slots)}.",
        f"With {micro_batches(more)} it would be {idle}/{more + p - 1} = {percent(idle / (more + p - 1))}.",
    ]


def forward_table(one: TimedOrder, setting: Setting) -> dict[str, Any]:
    """Length and idle share of the forward pass, by hand and simulated."""
    timed, p, m = one.timed, one.order.stages, one.order.microbatches
    plain = plain_grid(one, setting)
    idle = (
        f"{p - 1}/{m + p - 1} = {percent(timed.idle_over_makespan)}"
        if plain
        else percent(timed.idle_over_makespan)
    )
    rows = [
        row("Forward pass, slots" if plain else "Forward pass, makespan", formula=short(timed.makespan, 4)),
        row("Forward pass, idle share", "of makespan", formula=idle),
    ]
    return {"head": "the whole step is what ranks run", "rows": rows, "sources": {"formula": "simulated"}}
