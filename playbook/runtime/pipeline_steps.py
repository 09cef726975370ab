"""One step of a pipeline on the clock, real or emulated, and how far it lies from the simulated one."""

import gc
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch
import torch.distributed as dist

from playbook.program.schedule import Schedule
from playbook.program.simulation import Simulation
from playbook.runtime.part import MicroBatch, Part, Place
from playbook.runtime.pipeline_costs import message_s, stage_costs
from playbook.runtime.pipeline_emulation import Costs, Emulation, blank, oversleep, stand_ins
from playbook.runtime.pipeline_executor import COMPUTE
from playbook.runtime.pipeline_levers import schedule_of, timed
from playbook.runtime.pipeline_routes import splits_backward
from playbook.runtime.pipeline_timeline import CudaTimeline, Timeline
from playbook.runtime.rank import current_phase, emit
from playbook.runtime.strategy_run import StrategyRun

HEAD_START_S = 0.02
"""Time in which every rank gets ready for a common start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineStep:
    """A step on the clock.

    Parameters
    ----------
    rows
        Of the timeline table, without scenario.
    summary
        `makespan_s`, `predicted_makespan_s`, `error` and `errors` by kind of action, `peak_live`, and
        `not_tried` where there is no prediction: why.
    """

    rows: list[dict[str, Any]]
    summary: dict[str, Any]


def time_pipeline(
    run: StrategyRun, place: Place, part: Part, microbatches: Sequence[MicroBatch], source: str
) -> PipelineStep:
    """Take one step of a pipeline with its actions on the clock; the first of all ranks begins at 0."""
    current_phase("timeline")
    schedule = schedule_of(run.scenario, run.own)
    unit_s = float(run.own.get("unit_s", 0.0))
    if unit_s:
        return emulate(run, place, part, microbatches, schedule, unit_s)
    clock = measure(place, part, microbatches)
    predicted, why_not = predict(run, place, part, microbatches, schedule)
    return compare(place, clock, source, predicted, 1.0, why_not)


def measure(place: Place, part: Part, microbatches: Sequence[MicroBatch]) -> Timeline:
    """Take a real step; a first one lets the device's memory and queues settle."""
    cuda = place.device.type == "cuda"
    if cuda:
        part.forward_backward(microbatches)
    zero_s = common_start(place)
    clock = CudaTimeline(device=place.device, zero_s=zero_s, report=report_action) if cuda else None
    clock = clock or Timeline(zero_s=zero_s, report=report_action)
    part.forward_backward(microbatches, clock)
    clock.finish()
    part.module.zero_grad()
    return clock


def predict(
    run: StrategyRun, place: Place, part: Part, microbatches: Sequence[MicroBatch], schedule: Schedule
) -> tuple[Simulation | None, str | None]:
    """Simulate the step with what each stage costs alone and a message takes; None with the reason if not."""
    if not place.over_nccl or place.ranks < 2:
        where = "ranks share one GPU" if place.device.type == "cuda" else "ranks share the processor's cores"
        return None, f"not tried: {where}, whose times say nothing of a schedule; it takes two GPUs over NCCL"
    if run.by == "library" and splits_backward(schedule):
        return None, "not tried: the library's own I and W run only inside its schedule"
    current_phase("timing each stage alone")
    microbatch, stages = microbatches[0], part.module
    assert isinstance(stages, torch.nn.ModuleDict)
    costs = stage_costs(stages, schedule, place, microbatch)
    stage: Any = next(iter(stages.values()))
    dtype = next(stage.parameters()).dtype
    room = torch.zeros(*microbatch[0].shape, stage.spec.hidden, dtype=dtype, device=place.device)
    return schedule.simulate(comm=message_s(place, room), **costs), None


def emulate(
    run: StrategyRun,
    place: Place,
    part: Part,
    microbatches: Sequence[MicroBatch],
    schedule: Schedule,
    unit_s: float,
) -> PipelineStep:
    """Take a step whose compute is replaced by sleeps."""
    ranks: Any = import_module(f"playbook.strategies.{run.strategy}.ranks")
    assert isinstance(part.module, torch.nn.ModuleDict)
    idle = getattr(ranks, f"by_{run.by}")(stand_ins(part.module, schedule), place, schedule=schedule)
    simulated, empty = timed(schedule, run.own), blank(microbatches)
    idle.forward_backward(empty)
    common_start(place)
    late_s = oversleep()
    with no_collection():
        clock = Emulation(
            costs=Costs(schedule, simulated, unit_s),
            latency_s=run.own.get("latency", 0.0) * unit_s,
            oversleep_s=late_s,
            zero_s=common_start(place) + HEAD_START_S,
            report=report_action,
        )
        time.sleep(max(0.0, clock.zero_s - time.monotonic() - late_s))
        idle.forward_backward(empty, clock)
        clock.finish()
    idle.close()
    return compare(place, clock, "emulated", simulated, unit_s, None)


@contextmanager
def no_collection() -> Iterator[None]:
    """Keep Python from stopping for garbage in the middle of a step that is timed to the millisecond."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def compare(
    place: Place,
    clock: Timeline,
    source: str,
    predicted: Simulation | None,
    unit_s: float,
    why_not: str | None,
) -> PipelineStep:
    """Lay a step beside its simulation: the makespan, and the actions by kind."""
    times = [(row["kind"], row["op"], row["start_s"], row["duration_s"]) for row in clock.rows]
    everyones: list[Any] = [None] * place.ranks
    dist.all_gather_object(everyones, times, group=place.group)
    actions = [row for rows in everyones for row in rows if row[0] in COMPUTE]
    first_s = min(start_s for rows in everyones for _, _, start_s, _ in rows)
    begin_s = min(start_s for _, _, start_s, _ in actions)
    makespan_s = max(start_s + duration_s for _, _, start_s, duration_s in actions) - begin_s
    summary: dict[str, Any] = {"source": source, "makespan_s": makespan_s, "peak_live": clock.peak_live}
    if predicted is None:
        summary["not_tried"] = why_not
    else:
        summary |= {
            "predicted_makespan_s": predicted.makespan * unit_s,
            "error": makespan_s / (predicted.makespan * unit_s) - 1,
            "errors": errors_by_kind(actions, predicted, unit_s),
        }
    rows = [{**row, "start_s": row["start_s"] - first_s, "source": source} for row in clock.rows]
    return PipelineStep(rows=rows, summary=summary)


def errors_by_kind(
    actions: Sequence[tuple[str, str, float, float]], predicted: Simulation, unit_s: float
) -> dict[str, float]:
    """Mean of |measured / predicted − 1| over the actions of each kind that the simulation has too."""
    costs = dict(zip(predicted.ids, (predicted.duration * unit_s).tolist(), strict=True))
    found: dict[str, list[float]] = defaultdict(list)
    for kind, op, _, duration_s in actions:
        if costs.get(op):
            found[kind].append(abs(duration_s / costs[op] - 1))
    return {kind: sum(values) / len(values) for kind, values in found.items()}


def common_start(place: Place) -> float:
    """Wait for every rank, and agree on a moment of the clock that all of a machine share: the latest now."""
    if place.device.type == "cuda":
        torch.cuda.synchronize(place.device)
    moment = torch.zeros(1, dtype=torch.float64, device=place.device)
    dist.all_reduce(moment, group=place.group)
    moment += time.monotonic()
    dist.all_reduce(moment, op=dist.ReduceOp.MAX, group=place.group)
    return moment.item()


def report_action(row: dict[str, Any]) -> None:
    """Stream an action to the kernel as it ends."""
    fields = ("kind", "label", "microbatch", "start_s", "duration_s", "bytes")
    emit("action", row["op"], **{"what" if name == "kind" else name: row[name] for name in fields})
