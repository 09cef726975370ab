"""The textbook's idle time beside the simulated one, and why they differ where they do."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from playbook.pictures.pipeline_orders import TimedOrder
from playbook.pictures.pipeline_setting import Setting
from playbook.schedules import plans
from playbook.schedules.action import KINDS
from playbook.schedules.plan import ChunkCosts, Plan

SAME = 1e-6
"""Part of the makespan below which the two are equal."""

_CONDITION = re.compile(r" = |, | on | at |; |: ")
"""Where a formula ends and its conditions begin."""


def formula_words(one: TimedOrder, setting: Setting) -> dict[str, Any]:
    """The formula with its value, whether it holds here, and a remark where it does not.

    Empty for an order that has no formula: one of the user's, or the forwards alone.
    """
    plan = plans().get(one.order.name)
    if plan is None:
        return {}
    text, value = _CONDITION.split(plan.idle_text)[0], formula_idle(one, plan)
    holds = abs(value - one.timed.idle) <= SAME * one.timed.makespan
    return {
        "text": f"{text} = {one.bare(value)}",
        "whole": plan.idle_text,
        "holds": holds,
        "remark": "" if holds else _remark(one, plan, setting, value),
    }


def formula_idle(one: TimedOrder, plan: Plan) -> float:
    """Idle time that a plan's formula gives for an order's size and (mean) costs."""
    order = one.order
    return plan.idle(order.stages, order.microbatches, order.chunks, one.costs or mean_costs(one))


def mean_costs(one: TimedOrder) -> ChunkCosts:
    """Costs of the mean chunk of an order whose stages differ."""
    mean = [_mean(one, kind) for kind in KINDS]
    forward, backward, backward_input, backward_weight = mean
    if backward_input or backward_weight:
        return ChunkCosts(forward=forward, backward_input=backward_input, backward_weight=backward_weight)
    return ChunkCosts(forward=forward, backward_input=backward / 2, backward_weight=backward / 2)


def _mean(one: TimedOrder, kind: str) -> float:
    found = one.timed.duration[one.timed.kind == KINDS.index(kind)]
    return float(np.mean(found)) if found.size else 0.0


def _remark(one: TimedOrder, plan: Plan, setting: Setting, value: float) -> str:
    order = one.order
    unequal = "equal stages and no latency" if one.model is not None else setting.unequal
    reasons = [
        plan.note(order.stages, order.microbatches, order.chunks),
        plan.cost_note(one.costs) if one.costs is not None else None,
        f"it is for {unequal}" if unequal else None,
    ]
    why = next((reason for reason in reasons if reason), "the simulation holds")
    return f"Formula {one.bare(value)}, this order {one.bare(one.timed.idle)}: {why}."
