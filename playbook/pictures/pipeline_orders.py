"""Schedules timed with the same work, so that their clocks agree: in units, or in seconds of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from playbook.pictures.pipeline_pairs import pair_costs
from playbook.pictures.pipeline_setting import Setting
from playbook.pictures.words import amount, in_words, micro_batches, short
from playbook.program.schedule import Schedule, schedule
from playbook.program.simulation import Simulation
from playbook.schedules import find_plan
from playbook.schedules.plan import ChunkCosts
from playbook.units import THIN, seconds

if TYPE_CHECKING:
    from playbook.predict.pipeline import PipelineTimeline

MOST = 4
"""Schedules that one clock can hold and still be read."""

TITLES = {
    "gpipe": "GPipe",
    "1f1b": "1F1B",
    "interleaved-1f1b": "Interleaved 1F1B",
    "looped-bfs": "Looped BFS",
    "zb-h1": "ZB-H1",
    "zb-h2": "ZB-H2",
    "interleaved-zero-bubble": "Interleaved zero bubble",
    "zbv": "ZB-V",
    "v-half": "V-Half",
    "v-min": "V-Min",
    "dualpipe": "DualPipe",
    "dualpipe-v": "DualPipe-V",
}


def title_of(name: str) -> str:
    """A schedule's name as papers write it; the name itself if it is not known here."""
    return TITLES.get(name, name)


@dataclass(frozen=True, kw_only=True, eq=False)  # no slots: peaks are read off once
class TimedOrder:
    """A schedule and its simulation, on the clock that all schedules of a picture share."""

    order: Schedule
    timed: Simulation
    costs: ChunkCosts | None = None
    """Costs of one chunk in units of the picture; None in seconds of a model."""
    given: Mapping[str, Any] = field(default_factory=dict)
    """What `Schedule.simulate` was asked for."""
    model: PipelineTimeline | None = None
    """Seconds and bytes of a model's step; None in units."""
    model_words: str = ""
    """The model and what each stage is, in words."""
    gpu_words: str = ""
    message_bytes: float = 0.0
    """Bytes of a message between ranks, of a model."""
    hop: float = 0.0
    """Delay of a message between ranks, in the unit of the simulation."""
    forward: bool = False
    """Whether only the forwards run."""

    @property
    def title(self) -> str:
        """Name as papers write it."""
        return title_of(self.order.name)

    @cached_property
    def peaks(self) -> tuple[float, ...]:
        """Per rank, the most it holds: bytes of a model; else activations, in those of one micro-batch's
        whole share (A)."""
        if self.model is not None:
            return tuple(float(memory.peak_bytes) for memory in self.model.memory)
        return tuple(live / self.order.chunks for live in self.timed.peak_live)

    @property
    def worst(self) -> int:
        """Rank that holds most; the first of equals."""
        return self.peaks.index(max(self.peaks))

    @property
    def throughput(self) -> float:
        """Work over makespan: the part of the step in which a mean rank computes."""
        return 1 - self.timed.idle_over_makespan

    def curve(self, rank: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Times at which a rank's memory changes, and what it holds from each time on, as in `peaks`."""
        if self.model is not None:
            times, held = self.model.curve(rank)
            return np.asarray(times), np.asarray(held, dtype=np.float64)
        times, held = self.timed.live_curve(rank)
        return times, held / self.order.chunks

    def long(self, duration: float) -> str:
        """A duration in words: units, or seconds of a model."""
        return seconds(duration) if self.model is not None else f"{short(duration)} units"

    def bare(self, duration: float) -> str:
        """The same as a number for a sentence that says the unit once."""
        return seconds(duration) if self.model is not None else short(duration)

    def held(self, most: float) -> str:
        """Memory in words: A, or GB of a model."""
        return amount(most) if self.model is not None else f"{short(most)}{THIN}A"

    def holds(self, most: float) -> str:
        """The same as a noun of a sentence."""
        return amount(most) if self.model is not None else micro_batches(most)


def takes_chunks(name: str) -> bool:
    """Whether a schedule can give a rank any number of chunks."""
    plan = find_plan(name)
    return plan.chains == 1 and plan.refuse(2, 12, 3) is None


@lru_cache(maxsize=64)
def order_of(name: str, stages: int, microbatches: int, chunks: int) -> Schedule:
    """A schedule of the folder; `chunks` counts only for those that take any number."""
    return schedule(
        name, stages=stages, microbatches=microbatches, chunks=chunks if takes_chunks(name) else None
    )


def check_count(names: Sequence[str]) -> None:
    """Refuse no schedule at all, and more than one clock can hold.

    Raises
    ------
    ValueError
        In both cases.
    """
    if not names:
        raise ValueError("schedules=[]: choose at least one")
    if len(names) > MOST:
        raise ValueError(
            f"{in_words(len(names))} schedules are chosen; one clock holds {in_words(MOST)}. "
            "The scatter compares all twelve: throughput | memory"
        )


def timed_orders(
    names: Sequence[str], setting: Setting, own: Mapping[str, Schedule] | None = None
) -> tuple[TimedOrder, ...]:
    """Time each schedule with the same work, so that their clocks agree.

    Parameters
    ----------
    names
        Schedules of the folder, or of `own`.
    setting
        Size, costs and cut.
    own
        Orders of the user's, by name; their size must be that of the setting.

    Raises
    ------
    ValueError
        For no names or too many, an unknown name, or a size that a schedule refuses.

    Notes
    -----
    A unit is the forward of one chunk of the schedule with most chunks, so that all numbers stay whole.
    """
    check_count(names)
    orders = [find_order(name, setting, own or {}) for name in names]
    most = max(order.chunks for order in orders)
    return tuple(timed_order(order, setting, most) for order in orders)


def find_order(name: str, setting: Setting, own: Mapping[str, Schedule]) -> Schedule:
    """An order of the user's, or a schedule of the folder, at the setting's size.

    Raises
    ------
    ValueError
        If it has no such size.
    """
    if name not in own:
        return order_of(name, setting.stages, setting.microbatches, setting.chunks)
    order = own[name]
    for what, wanted, found in (
        ("stages", setting.stages, order.stages),
        ("microbatches", setting.microbatches, order.microbatches),
    ):
        if wanted != found:
            raise ValueError(
                f"{what}={wanted}, but the order {name} has {found}; use {found}, or leave it out"
            )
    return order


@lru_cache(maxsize=64)
def timed_order(order: Schedule, setting: Setting, most: int) -> TimedOrder:
    """Time one order in units of 1/`most` of a rank's share."""
    costs, scale = setting.costs, most / order.chunks
    chunk = ChunkCosts(
        forward=costs.forward * scale,
        backward_input=(costs.backward_input + costs.again) * scale,
        backward_weight=costs.backward_weight * scale,
        overlap=costs.overlap * (costs.forward + costs.backward) * scale if costs.overlap < 1 else None,
    )
    costed: dict[str, Any] = {
        "forward": costs.forward * scale,
        "backward_input": costs.backward_input * scale,
        "backward_weight": costs.backward_weight * scale,
        "recompute": costs.again * scale,
        "overlap": chunk.overlap,
    }
    costed = {name: cost for name, cost in costed.items() if cost is not None}
    if not costed["recompute"]:
        costed.pop("recompute")
    if not setting.cut.even:
        shares = setting.cut.shares(order.depth, order.stages)
        costed = {name: [cost * share for share in shares] for name, cost in costed.items()}
        if chunk.overlap is not None:
            whole = [chunk.backward * share for share in shares]
            costed["overlap"] = pair_costs(order, costed["forward"], whole, costs.overlap)
    given = {**costed, "comm": costs.latency * most}
    if setting.straggler:
        given["stragglers"] = dict([setting.straggler])
    return TimedOrder(order=order, timed=order.simulate(**given), costs=chunk, given=given, hop=given["comm"])
