"""Twins that were recorded on a GPU, for readers without one: what a rank of a large world really held.

`twins.json` is written by `python -m benchmarks.record_twins` from the results of `benchmarks.gpu_twin`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any

from playbook.spec import Scenario
from playbook.units import gb


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedTwin:
    """The real step of one rank on one GPU, as it was measured once.

    Parameters
    ----------
    scenario, rank
        Whose step.
    peak_bytes, reserved_bytes
        Most that the allocator had handed out, and had taken from the driver.
    seconds
        Median seconds of the step, collectives taking the modelled time.
    traced_peak_bytes
        Peak of the same rank's trace; None where none was recorded.
    machine, date
        Where and when.
    chapter
        Chapter whose table it belongs to; "" for none.
    """

    scenario: Scenario
    rank: int
    peak_bytes: int
    reserved_bytes: int
    seconds: float
    traced_peak_bytes: int | None
    machine: str
    date: str
    chapter: str

    def __repr__(self) -> str:
        return (
            f"RecordedTwin({self.scenario.model.name}, rank {self.rank} of {self.scenario.world}: peak "
            f"{gb(self.peak_bytes)}, reserved {gb(self.reserved_bytes)}; {self.machine}, {self.date})"
        )


@cache
def _file() -> dict[str, Any]:
    return json.loads(files("playbook.recorded").joinpath("twins.json").read_text(encoding="utf-8"))


def recorded_twins(chapter: str | None = None) -> tuple[RecordedTwin, ...]:
    """Return the recorded twins, all or those of a chapter's table.

    Examples
    --------
    >>> {twin.machine for twin in recorded_twins()}
    {'NVIDIA H200'}
    """
    return tuple(twin for twin in _twins() if chapter is None or twin.chapter == chapter)


def find_twin(scenario: Scenario, ranks: Iterable[int] | None = None) -> RecordedTwin | None:
    """Return the twin recorded of a scenario, on one of some ranks if they are given; None if there is none.

    The cluster does not count: what a rank holds does not depend on it.
    """
    wanted = None if ranks is None else set(ranks)
    for twin in _twins():
        if same_step(twin.scenario, scenario) and (wanted is None or twin.rank in wanted):
            return twin
    return None


def same_step(one: Scenario, other: Scenario) -> bool:
    """Whether two scenarios are the same work on the same ranks, on whatever cluster."""
    return _step(one) == _step(other)


def _step(s: Scenario) -> tuple[Any, ...]:
    return s.model, replace(s.workload, global_batch=s.global_batch), s.layout, s.framework


@cache
def _twins() -> tuple[RecordedTwin, ...]:
    told = _file()
    return tuple(
        RecordedTwin(
            scenario=Scenario.from_json(row["scenario"]),
            rank=row["rank"],
            peak_bytes=row["peak_bytes"],
            reserved_bytes=row["reserved_bytes"],
            seconds=row["seconds"],
            traced_peak_bytes=row.get("traced_peak_bytes"),
            machine=told["machine"],
            date=told["date"],
            chapter=row.get("chapter", ""),
        )
        for row in told["twins"]
    )
