"""Pipeline schedules on one clock: packed blocks, end and idle time of each, and which order gained what."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from playbook.pictures.pipeline_words import headline, table_rows, title_of
from playbook.pictures.words import counted, micro_batches, short
from playbook.program.schedule import Schedule, schedule
from playbook.program.simulation import Simulation
from playbook.schedules import KINDS, find_plan
from playbook.units import percent

if TYPE_CHECKING:
    from playbook.pictures.pipeline_run import MeasuredOrder


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Cost of a rank's whole share of a micro-batch, in units; a chunk costs 1/v of it."""

    forward: float = 1.0
    backward_input: float = 1.0
    backward_weight: float = 1.0
    latency: float = 0.0
    """Delay of one hop between ranks, in the same unit."""

    @classmethod
    def parse(cls, text: str, latency: float = 0.0) -> Costs:
        """Read "F : I : W", such as "1:1:1" or "1 : 1.2 : 0.8".

        Raises
        ------
        ValueError
            If it is not three numbers, 0 or more, with F above 0.
        """
        parts = text.replace(",", ":").split(":")
        try:
            values = [float(part) for part in parts]
        except ValueError:
            values = []
        if len(values) != 3 or not np.isfinite(values).all() or min(values) < 0 or values[0] <= 0:
            raise ValueError(f"costs={text!r}: give F : I : W as three numbers, F above 0, such as 1:1:1")
        return cls(forward=values[0], backward_input=values[1], backward_weight=values[2], latency=latency)

    @property
    def words(self) -> str:
        """F : I : W as text."""
        return " : ".join(short(value) for value in (self.forward, self.backward_input, self.backward_weight))


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedOrder:
    """A schedule and its simulation, in units shared by all schedules of a picture."""

    order: Schedule
    timed: Simulation
    scale: float
    """Units of this picture in one unit of the costs."""

    @property
    def title(self) -> str:
        """Name as papers write it."""
        return title_of(self.order.name)

    @property
    def peaks(self) -> tuple[float, ...]:
        """Per rank, the most activations alive, in those of one micro-batch's whole share (A)."""
        return tuple(live / self.order.chunks for live in self.timed.peak_live)


def takes_chunks(name: str) -> bool:
    """Whether a schedule can give a rank several chunks."""
    return find_plan(name).refuse(2, 4, 2) is None


@lru_cache(maxsize=64)
def _order(name: str, stages: int, microbatches: int, chunks: int | None) -> Schedule:
    return schedule(name, stages=stages, microbatches=microbatches, chunks=chunks)


def timed_orders(
    names: Sequence[str], stages: int, microbatches: int, costs: Costs, chunks: int | None = None
) -> tuple[TimedOrder, ...]:
    """Time each schedule with the same work, so that their clocks agree.

    Parameters
    ----------
    names
        Schedules of the folder.
    stages, microbatches
        Ranks p and micro-batches m.
    costs
        Of a rank's whole share.
    chunks
        Chunks a rank for the schedules that take several; their own default if None.

    Raises
    ------
    ValueError
        For no names, an unknown name, or a size that a schedule refuses.
    """
    if not names:
        raise ValueError("schedules=[]: choose at least one")
    orders = [_order(name, stages, microbatches, chunks if takes_chunks(name) else None) for name in names]
    most = max(order.chunks for order in orders)
    return tuple(_timed(order, costs, float(most)) for order in orders)


@lru_cache(maxsize=16)
def _timed(order: Schedule, costs: Costs, most: float) -> TimedOrder:
    scale = most / order.chunks
    timed = order.simulate(
        forward=costs.forward * scale,
        backward_input=costs.backward_input * scale,
        backward_weight=costs.backward_weight * scale,
        comm=costs.latency * most,
    )
    return TimedOrder(order=order, timed=timed, scale=scale)


def pipeline_picture(
    orders: Sequence[TimedOrder], costs: Costs, measured: Mapping[str, MeasuredOrder] | None = None
) -> dict[str, Any]:
    """Picture data of schedules on one clock.

    Parameters
    ----------
    orders
        What `timed_orders` made.
    costs
        What they were timed with.
    measured
        By schedule name, what real ranks did.
    """
    measured = measured or {}
    first = orders[0].order
    most = max(one.order.chunks for one in orders)
    unit = "forward of a stage" if most == 1 else f"forward of 1/{most} of a rank's layers"
    return {
        "kick": f"{counted(first.stages, 'stage')} · {micro_batches(first.microbatches)} · one clock",
        "headline": headline(orders, measured),
        "schedules": [_lane(one) for one in orders],
        "unit": f"1 unit = {unit}",
        "work": orders[0].timed.ideal,
        "work_words": f"{short(orders[0].timed.ideal)} = work of a rank",
        "costs": [costs.forward, costs.backward_input, costs.backward_weight],
        "table": table_rows(orders, measured),
        "foot": "idle = makespan − work of a rank · A = activations of one micro-batch on one rank",
    }


def _lane(one: TimedOrder) -> dict[str, Any]:
    timed, order = one.timed, one.order
    peaks = one.peaks
    return {
        "name": order.name,
        "title": one.title,
        "note": _note(one),
        "chunks": order.chunks,
        "makespan": timed.makespan,
        "counts": np.diff(timed.bounds).tolist(),
        "start": timed.start.astype("<f4").tobytes(),
        "duration": timed.duration.astype("<f4").tobytes(),
        "kind": timed.kind.astype("u1").tobytes(),
        "stage": timed.stage.astype("<u2").tobytes(),
        "microbatch": timed.microbatch.astype("<u2").tobytes(),
        "peaks": list(peaks),
        "end": short(timed.makespan),
        "idle": [percent(timed.idle_over_makespan), percent(timed.idle_over_ideal), short(timed.span_idle)],
        "peak": [f"{short(max(peaks))} A", _whose(peaks)],
        "gap": _longest_gap(timed),
    }


def _whose(peaks: Sequence[float]) -> str:
    if len(set(peaks)) == 1:
        return "peak, all ranks"
    return f"peak, rank {peaks.index(max(peaks))}"


def _note(one: TimedOrder) -> str:
    order, peak = one.order, max(one.peaks)
    chunks = f"{order.chunks} chunks a rank" if order.chunks > 1 else counted(order.stages, "stage")
    most = f"rank {one.peaks.index(peak)} holds {micro_batches(peak)}"
    return f"{chunks}; {most}" + (f" · {order.note}" if order.note else "")


def _longest_gap(timed: Simulation) -> dict[str, Any] | None:
    """The longest wait of rank 0 between two actions, and what it waits for.

    None if under a tenth of the step.
    """
    rows = slice(timed.bounds[0], timed.bounds[1])
    start, end = timed.start[rows], timed.end[rows]
    waits = start[1:] - end[:-1]
    if not waits.size or waits.max() < 0.1 * timed.makespan:
        return None
    at = int(waits.argmax())
    kind, microbatch = KINDS[int(timed.kind[rows][at + 1])], int(timed.microbatch[rows][at + 1])
    return {"from": float(end[at]), "to": float(start[at + 1]), "words": f"waits for {kind}{microbatch}"}


def pipeline_copies(orders: Sequence[TimedOrder], costs: Costs) -> dict[str, str]:
    """The schedules as Python, as commands and as JSON."""
    first = orders[0].order
    names = [one.order.name for one in orders]
    given = {"stages": first.stages, "microbatches": first.microbatches}
    cost = {
        "forward": costs.forward,
        "backward_input": costs.backward_input,
        "backward_weight": costs.backward_weight,
        "comm": costs.latency,
    }
    python = ["import playbook as pb", ""]
    command = []
    for one in orders:
        chunk = {name: value / one.order.chunks if name != "comm" else value for name, value in cost.items()}
        words = ", ".join(f"{name}={value:g}" for name, value in chunk.items())
        size = {**given, **({"chunks": one.order.chunks} if one.order.chunks > 1 else {})}
        sizes = ", ".join(f"{name}={value}" for name, value in size.items())
        python.append(f'pb.schedule("{one.order.name}", {sizes}).simulate({words})')
        options = " ".join(
            f"--{name.replace('_', '-')} {value:g}" for name, value in {**size, **chunk}.items()
        )
        command.append(f"playbook schedule {one.order.name} {options}")
    return {
        "python": "\n".join([*python, ""]),
        "command": "\n".join(command),
        "json": json.dumps({"schedules": names, **given, **cost}, indent=2),
    }
