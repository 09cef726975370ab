"""The schedules of the folder at a setting: what each takes, what it holds, and why it is out if it is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from playbook.planner.setting import Setting
from playbook.program.schedule import Schedule, schedule
from playbook.program.simulation import Simulation
from playbook.schedules.packed import I, unpack
from playbook.schedules.registry import plans


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tried:
    """An order at a setting."""

    schedule: Schedule
    simulation: Simulation
    objection: str
    """Why it is no answer under the setting's cap and options, in words; empty if it is one."""

    @property
    def name(self) -> str:
        """The schedule's name."""
        return self.schedule.name

    @property
    def copies(self) -> int:
        """Copies of the model's stages that the ranks hold together."""
        return self.schedule.chains

    @property
    def feasible(self) -> bool:
        """Whether it keeps within cap and options."""
        return not self.objection

    @property
    def makespan(self) -> float:
        """End of the last action, in the unit of the costs."""
        return self.simulation.makespan

    @property
    def peak(self) -> int:
        """Most stage-chunks alive on any rank."""
        return max(self.simulation.peak_live)


def try_order(made: Schedule, setting: Setting) -> Tried:
    """Time an order with the setting's costs, by the event engine, and hold it to the cap."""
    timed = made.simulate(
        forward=setting.forward,
        backward_input=setting.backward_input,
        backward_weight=setting.backward_weight,
        backward=setting.backward,
        comm=setting.comm or 0.0,
    )
    return Tried(schedule=made, simulation=timed, objection=_objection(made, timed, setting))


def known_orders(setting: Setting) -> tuple[list[Tried], dict[str, str]]:
    """Every schedule of the folder that has an order at this size, and why the others have none."""
    found, refused = [], {}
    for name, made in _makings(setting):
        if isinstance(made, str):
            refused[name] = made
        else:
            found.append(try_order(made, setting))
    return found, refused


def _makings(setting: Setting) -> Iterator[tuple[str, Schedule | str]]:
    for name in plans():
        try:
            yield name, schedule(name, setting.ranks, setting.microbatches, setting.chunks)
        except ValueError as refusal:
            yield name, str(refusal)


def _objection(made: Schedule, timed: Simulation, setting: Setting) -> str:
    if made.chains > setting.copies:
        return f"holds every stage {made.chains} times"
    if not setting.split and any(np.any(unpack(order)[1] == I) for order in made.packed):
        return "splits backwards"
    if setting.cap is None:
        return ""
    over = [
        (peak - cap, rank, peak, cap)
        for rank, (peak, cap) in enumerate(zip(timed.peak_live, setting.cap, strict=True))
    ]
    excess, rank, peak, cap = max(over, key=lambda one: one[0])
    return f"holds {peak} on rank {rank}, cap {cap}" if excess > 0 else ""
