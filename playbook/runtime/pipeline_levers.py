"""Levers of a pipeline's run: costs by stage, and an order of one's own. Needs no torch."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from playbook.program.schedule import Schedule, schedule_from_orders
from playbook.program.schedule import schedule as make_schedule
from playbook.program.simulation import Simulation
from playbook.schedules.orders import parse_orders
from playbook.spec import Scenario
from playbook.spec.rules import not_negative
from playbook.units import counted

COSTS = ("forward", "backward", "backward_input", "backward_weight", "overlap")
"""Levers that are a number of units, or one for each stage."""


def read_cost(lever: str, value: Any) -> float | tuple[float, ...]:
    """Check a cost: one number, or a sequence with one for each stage."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return tuple(not_negative(lever, one) for one in value)
    return not_negative(lever, value)


def read_order(value: Any) -> Schedule:
    """Read an order: a schedule as it is, the path of a CSV file, or its text.

    Raises
    ------
    TypeError, ValueError
        If it is none of them, or the order is not whole.
    """
    if isinstance(value, Schedule):
        return value
    if isinstance(value, Path) or (isinstance(value, str) and value.strip().lower().endswith(".csv")):
        return make_schedule(value)
    if isinstance(value, str):
        return schedule_from_orders(parse_orders(value))
    raise TypeError(f"order={value!r} must be a Schedule, CSV text such as '0F0,0B0', or the path of a file")


def take_order(levers: dict[str, Any], own: dict[str, Any], ranks: int) -> None:
    """Put an order of one's own, given as `order` or as a `schedule` that is a file, in its place in `own`.

    It brings its number of chunks and micro-batches with it.

    Raises
    ------
    ValueError
        If another number, another schedule or another number of ranks is asked for.
    """
    named = levers.get("schedule")
    from_file = isinstance(named, str) and named.endswith(".csv")
    if "order" not in own and not from_file:
        return
    if "order" in own and named is not None:
        raise ValueError(f"order and schedule={named} are both given; leave one of them out")
    order = read_order(own.get("order", named))
    if order.stages != ranks:
        raise ValueError(
            f"the order has {counted(order.stages, 'rank')} and the pool {ranks}; use Pool({order.stages})"
        )
    for lever, found in (("chunks", order.chunks), ("microbatches", order.microbatches)):
        if levers.setdefault(lever, found) != found:
            raise ValueError(
                f"{lever}={levers[lever]} but {order.name} has {found}; leave {lever} out, or give {found}"
            )
    levers["schedule"] = order.name if order.name.endswith(".csv") else f"{order.name}.csv"
    own["order"] = order


def refuse_order(schedule: Schedule, own: Mapping[str, Any], by: str) -> None:
    """Refuse costs that do not fit, an order that deadlocks, and what the library has no runtime for."""
    timed(schedule, own)
    if by == "library" and schedule.chains > 1:
        raise ValueError(
            f"the library has no bidirectional order, and {schedule.name} lets micro-batches in at both "
            "ends; use by='hand', or schedule='dualpipe-v'"
        )


def schedule_of(scenario: Scenario, own: Mapping[str, Any]) -> Schedule:
    """Return the order that runs: one's own, or the layout's schedule."""
    if "order" in own:
        return own["order"]
    layout = scenario.layout
    return make_schedule(layout.schedule, layout.pp, scenario.microbatches, layout.chunks)


def timed(schedule: Schedule, own: Mapping[str, Any]) -> Simulation:
    """Time a schedule with the costs and the latency of a run's levers, in units.

    Raises
    ------
    ValueError
        If costs do not fit the stages, or the order deadlocks.
    """
    costs = {lever: own[lever] for lever in COSTS if lever in own}
    return schedule.simulate(comm=own.get("latency", 0.0), **costs)
