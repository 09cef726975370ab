"""Pipeline schedules on one clock, and which order gained what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from playbook.pictures.pipeline_forward import forward_headline, forward_table
from playbook.pictures.pipeline_gain import gain_picture
from playbook.pictures.pipeline_lane import lane
from playbook.pictures.pipeline_limit import limit_of
from playbook.pictures.pipeline_orders import TimedOrder
from playbook.pictures.pipeline_setting import Setting
from playbook.pictures.pipeline_table import table_rows
from playbook.pictures.pipeline_words import headline
from playbook.pictures.words import micro_batches, short
from playbook.units import counted

if TYPE_CHECKING:
    from playbook.pictures.pipeline_run import MeasuredOrder


def pipeline_picture(
    orders: Sequence[TimedOrder], setting: Setting, measured: Mapping[str, MeasuredOrder] | None = None
) -> dict[str, Any]:
    """Picture data of schedules on one clock.

    Parameters
    ----------
    orders
        What `timed_orders`, `forward_orders` or `model_orders` made.
    setting
        What they were timed for.
    measured
        By schedule name, what real ranks did.
    """
    measured = measured or {}
    first = orders[0]
    limit, scale, costs = limit_of(first, setting), time_scale(orders), setting.costs
    said = forward_headline(first, setting) if first.forward else headline(orders, measured, limit.most)
    return {
        "shown": "forward" if first.forward else "step",
        "kick": kick(first),
        "headline": said,
        "schedules": [lane(one, setting, limit, scale) for one in orders],
        "unit": unit_words(orders),
        "hop": hop_words(orders),
        "units": {"time": _time_unit(first, scale), "hold": limit.unit},
        "work": first.timed.ideal / scale,
        "work_words": _work_words(first, scale),
        "costs": [costs.forward, costs.backward_input, costs.backward_weight, costs.again],
        "cap": {"value": limit.value, "words": limit.words} if limit.most else {},
        "gain": gain_picture(orders, setting),
        "table": forward_table(first, setting) if first.forward else table_rows(orders, measured),
        "foot": foot(first, costs.recompute),
    }


def kick(one: TimedOrder) -> str:
    """Sizes of a picture, small above its headline."""
    order = one.order
    model = "" if one.model is None else f"{one.model_words} · "
    return f"{model}{counted(order.stages, 'stage')} · {micro_batches(order.microbatches)} · one clock"


def foot(one: TimedOrder, recompute: bool = False) -> str:
    """What the words of a picture mean."""
    if one.forward:
        return "a slot = forward of one micro-batch on one rank · idle = slots with nothing to do"
    if one.model is not None:
        return "idle = makespan − work of a rank · GB as the allocator hands out, weights and state included"
    if recompute:
        return "A = inputs kept of one micro-batch on one rank; its own backward makes the rest again"
    return "idle = makespan − work of a rank · A = activations of one micro-batch on one rank"


def time_scale(orders: Sequence[TimedOrder]) -> float:
    """Unit of the view's clock in that of the simulations: milliseconds for the short steps of a model."""
    if orders[0].model is None:
        return 1.0
    return 1e-3 if max(one.timed.makespan for one in orders) < 1.0 else 1.0


def _time_unit(one: TimedOrder, scale: float) -> str:
    if one.model is None:
        return "slots" if one.forward else "units"
    return "s" if scale == 1.0 else "ms"


def unit_words(orders: Sequence[TimedOrder]) -> str:
    """What a unit of the clock is."""
    most = max(one.order.chunks for one in orders)
    if orders[0].model is not None:
        return "seconds and GB predicted from data-sheet rates"
    share = "forward of a stage" if most == 1 else f"forward of 1/{most} of a rank's layers"
    return f"1 {'slot' if orders[0].forward and most == 1 else 'unit'} = {share}"


def hop_words(orders: Sequence[TimedOrder]) -> str:
    """What the latency is in units of the clock; empty without one, and for a model."""
    first, most = orders[0], max(one.order.chunks for one in orders)
    if first.model is not None or not first.hop:
        return ""
    drawn = "unit" if first.hop == 1 else "units"
    said = f"A hop takes {short(first.hop)} {drawn}"
    if most == 1:
        return f"{said}: the latency, in the units of F : I : W."
    return f"{said}: latency {short(first.hop / most)} × {most}, as F : I : W are those of a whole rank."


def _work_words(one: TimedOrder, scale: float) -> str:
    work = one.timed.work
    mean = "work" if max(work) - min(work) <= 1e-9 * max(work) else "mean work"
    return f"{short(one.timed.ideal / scale)} = {mean} of a rank"
