"""What the controls of a pipeline picture ask for, and the schedules that answer it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from playbook.pictures.pipeline import foot, kick, pipeline_picture, time_scale, unit_words
from playbook.pictures.pipeline_emulation import unit_seconds
from playbook.pictures.pipeline_files import chrome_trace, times_csv
from playbook.pictures.pipeline_forward import forward_orders
from playbook.pictures.pipeline_limit import limit_of
from playbook.pictures.pipeline_model import CUTS, model_order, model_orders
from playbook.pictures.pipeline_orders import (
    TITLES,
    TimedOrder,
    find_order,
    takes_chunks,
    timed_order,
    timed_orders,
)
from playbook.pictures.pipeline_scatter import Field, field_of, scatter_headline, scatter_picture
from playbook.pictures.pipeline_setting import Costs, Cut, Setting, parse_straggler
from playbook.pictures.pipeline_table import table_rows
from playbook.program.schedule import Schedule

if TYPE_CHECKING:
    from playbook.pictures.pipeline_run import MeasuredOrder

SHOWN = ("forward", "step", "scatter")
OVERLAPPING = ("dualpipe", "dualpipe-v")
"""Schedules with overlapped pairs."""
OF_UNITS = ("costs", "overlap", "latency", "straggler", "cap")
"""Controls that a model answers by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Values of all controls, read and checked."""

    shown: str
    schedules: tuple[str, ...]
    setting: Setting
    model: str
    """"units", or a model's name."""
    gpu: str
    cut: str

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> Asked:
        """Read the controls' values, by name.

        Raises
        ------
        ValueError
            For one that cannot be, in words.
        """
        shown, model, cut = values["shown"], values["model"], values["cut"]
        if shown not in SHOWN:
            raise ValueError(f"shown={shown!r}: use one of {', '.join(SHOWN)}")
        for name in ("stages", "microbatches", "chunks"):
            if values[name] < 1:
                raise ValueError(f"{name}={values[name]}; use 1 or more")
        units = model == "units"
        if not units and cut not in CUTS:
            raise ValueError(
                f"cut={cut!r}: the stages of a model cost what its layers do; use equal or balanced"
            )
        if units and cut == "balanced":
            raise ValueError(
                "cut='balanced' shares out the layers of a model; choose a model, or use heavy head"
            )
        setting = Setting(
            stages=values["stages"],
            microbatches=values["microbatches"],
            chunks=values["chunks"],
            costs=_costs(values, units),
            cut=Cut.parse(cut, values["stage_costs"]) if units else Cut(),
            straggler=parse_straggler(values["straggler"], values["stages"]) if units else None,
            cap=_cap(values["cap"]) if units else 0.0,
        )
        return cls(
            shown=shown,
            schedules=tuple(values["schedules"]),
            setting=setting,
            model=model,
            gpu=values["gpu"],
            cut=cut,
        )

    @property
    def balanced(self) -> bool:
        """Whether a model's layers are shared out by their cost."""
        return self.cut == "balanced"

    def same_run(self, other: Asked | None) -> bool:
        """Whether a run of the other is a run of this: all but the picture and the limit are the same."""
        if other is None:
            return False
        plain = (
            replace(one, shown="step", setting=replace(one.setting, cap=0.0), schedules=())
            for one in (self, other)
        )
        return len(set(plain)) == 1 and self.shown != "forward"

    def controls(self, own: Mapping[str, Schedule]) -> dict[str, Any]:
        """Options of controls that depend on others, by name; None leaves a control out."""
        hidden: dict[str, Any] = {}
        if self.model == "units":
            least = self.setting.costs.least_overlap - 1e-9
            hidden["gpu"] = None
            hidden["overlap"] = [part / 20 for part in range(10, 21) if part / 20 >= least]
        else:
            hidden |= dict.fromkeys((*OF_UNITS, "stage_costs"))
            hidden["cut"] = [[name, words] for name, words in CUTS.items()]
        if own:
            hidden["schedules"] = [*map(list, TITLES.items()), *([name, name] for name in own)]
        if self.cut != "own":
            hidden["stage_costs"] = None
        if self.shown == "forward":
            hidden |= dict.fromkeys(("overlap", "recompute", "cap"))
        named = [name for name in self.schedules if name not in own]
        if self.shown != "scatter":
            if not any(takes_chunks(name) for name in named):
                hidden["chunks"] = None
            if not any(name in OVERLAPPING for name in named):
                hidden["overlap"] = None
        return hidden


def _costs(values: Mapping[str, Any], units: bool) -> Costs:
    if values["recompute"] not in ("on", "off"):
        raise ValueError(f"recompute={values['recompute']!r}: use on or off")
    again = values["recompute"] == "on"
    if not units:
        return Costs(recompute=again)
    overlap = values["overlap"]
    paired = values["shown"] == "scatter" or set(OVERLAPPING) & set(values["schedules"])
    if 0.5 <= overlap <= 1 and not paired:
        overlap = 1.0  # nothing shown has pairs, so no costs can be refused for them
    return Costs.parse(values["costs"], values["latency"], overlap, again)


def _cap(cap: float) -> float:
    if not (math.isfinite(cap) and cap >= 0):
        raise ValueError(f"cap={cap:g}: give the most that a rank may hold in A, or 0 for no cap")
    return float(cap)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The schedules that answer what was asked."""

    asked: Asked
    orders: tuple[TimedOrder, ...]
    """Those that are chosen."""
    field: Field | None = None
    """All of them, for the scatter."""

    @property
    def scale(self) -> float:
        """The view's unit of time, in that of the simulations."""
        return time_scale(self.orders)

    @property
    def runnable(self) -> bool:
        """Whether real ranks can run it."""
        try:
            unit_seconds(self.orders)
        except ValueError:
            return False
        return True

    def picture(self, measured: Mapping[str, MeasuredOrder]) -> dict[str, Any]:
        """Picture data, with what real ranks did where they ran."""
        if self.field is None:
            return pipeline_picture(self.orders, self.asked.setting, measured)
        limit = limit_of(self.orders[0], self.asked.setting)
        chosen = [one.order.name for one in self.orders]
        ran = {name: run.idle_over_makespan for name, run in measured.items()}
        return {
            "shown": "scatter",
            "kick": kick(self.orders[0]),
            "headline": scatter_headline(self.field, limit.most),
            "schedules": [],
            "scatter": scatter_picture(self.field, chosen, limit.scale, ran),
            "units": {"hold": limit.unit},
            "unit": unit_words(self.orders),
            "cap": {"value": limit.value, "words": limit.words} if limit.most else {},
            "table": table_rows(self.orders, measured),
            "foot": foot(self.orders[0], self.asked.setting.costs.recompute),
        }

    def files(self, form: str) -> list[tuple[str, bytes]]:
        """The schedules as files to take away: `csv` of times, `order` for torch, `trace`."""
        if form == "csv":
            return [("pipeline-times.csv", times_csv(self.orders).encode())]
        if form == "trace":
            return [("pipeline-trace.json", chrome_trace(self.orders).encode())]
        names = (one.order.name.removesuffix(".csv") for one in self.orders)
        return [
            (f"{name}.csv", one.order.to_csv().encode()) for name, one in zip(names, self.orders, strict=True)
        ]


def scene_of(asked: Asked, own: Mapping[str, Schedule]) -> Scene:
    """Time what was asked for.

    Parameters
    ----------
    asked
        Values of the controls.
    own
        Orders of the user's, by name.

    Raises
    ------
    ValueError
        For sizes that a schedule, a model or the scatter refuses.
    """
    setting = asked.setting
    if asked.model == "units":
        orders = timed_orders(asked.schedules, setting, own)
    else:
        orders = model_orders(asked.schedules, asked.model, setting, asked.gpu, asked.balanced)
    if asked.shown == "forward":
        if asked.model != "units":
            raise ValueError("the forward pass alone is shown in units; choose the whole step of a model")
        return Scene(asked=asked, orders=forward_orders(orders, setting))
    if asked.shown == "step":
        return Scene(asked=asked, orders=orders)

    def timed(name: str) -> TimedOrder:
        if asked.model != "units":
            return model_order(asked.model, name, setting, asked.gpu, asked.balanced)
        order = find_order(name, setting, own)
        return timed_order(order, setting, order.chunks)

    field = field_of(asked.schedules, setting.stages, setting.microbatches, setting.chunks, timed)
    return Scene(asked=asked, orders=orders, field=field)
