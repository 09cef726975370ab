"""One step of a pipeline on the clock, real or emulated, and how far it lies from the simulated one."""

import gc
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from playbook.program.schedule import Schedule
from playbook.program.simulation import Simulation
from playbook.runtime.part import MicroBatch, Part, Place
from playbook.runtime.pipeline_costs import beside_costs, message_s, stage_costs
from playbook.runtime.pipeline_emulation import Costs, Emulation, blank, oversleep, stand_ins
from playbook.runtime.pipeline_executor import COMPUTE
from playbook.runtime.pipeline_levers import schedule_of, timed
from playbook.runtime.pipeline_timeline import CudaTimeline, Timeline
from playbook.runtime.rank import current_phase, emit
from playbook.runtime.strategy_run import StrategyRun
from playbook.runtime.torch_private import one_message_queue

NOT_TRIED = "not tried"
"""How a summary without a prediction begins to say why; it takes two GPUs over NCCL."""

PAIR = "overlapped"
"""Kind of a forward and a backward that run as one."""

Timed = tuple[str, str, float, float]
"""Kind, id, start and duration in seconds of an action."""

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
        `source`, `makespan_s` and `peak_live`; `predicted_makespan_s`, `error` (of the makespan) and `errors`
        (by kind of action), with `costs_s` and `latency_s` where they were measured; or `not_tried`, why not.
    """

    rows: list[dict[str, Any]]
    summary: dict[str, Any]
    actions: Sequence[Timed]
    """Of every rank."""


def time_pipeline(
    run: StrategyRun, place: Place, part: Part, microbatches: Sequence[MicroBatch], source: str
) -> PipelineStep:
    """Take one step of a pipeline with its actions on the clock; the first of all ranks begins at 0."""
    current_phase("timeline")
    schedule = schedule_of(run.scenario, run.own)
    unit_s = float(run.own.get("unit_s", 0.0))
    if unit_s:
        return emulate(run, place, part, microbatches, schedule, unit_s)
    clocks = measure(run, place, part, microbatches)
    predicted, told = predict(run, place, part, microbatches, schedule)
    steps = [compare(place, clock, source, predicted, 1.0) for clock in clocks]
    middle = sorted(steps, key=lambda step: step.summary["makespan_s"])[len(steps) // 2]
    if predicted is not None:
        middle.summary["errors"] = errors_by_kind([step.actions for step in steps], predicted, 1.0)
    if place.device.type == "cuda":
        for row in middle.rows:
            report_action(row)
    return replace(middle, summary=middle.summary | told)


def measure(run: StrategyRun, place: Place, part: Part, microbatches: Sequence[MicroBatch]) -> list[Timeline]:
    """Take a real step; on GPUs as many as there are repeats, after one in which memory and queues settle."""
    if place.device.type != "cuda":
        clock = Timeline(zero_s=common_start(place), report=report_action)
        take(part, microbatches, clock)
        return [clock]
    part.forward_backward(microbatches)
    clocks: list[Timeline] = []
    for _ in range(run.repeats if place.over_nccl else 1):
        clocks.append(CudaTimeline(device=place.device, zero_s=common_start(place)))
        take(part, microbatches, clocks[-1])
    return clocks


def take(part: Part, microbatches: Sequence[MicroBatch], clock: Timeline) -> None:
    """Forward and backward of every micro-batch on the clock."""
    part.forward_backward(microbatches, clock)
    clock.finish()
    part.module.zero_grad()


def predict(
    run: StrategyRun, place: Place, part: Part, microbatches: Sequence[MicroBatch], schedule: Schedule
) -> tuple[Simulation | None, dict[str, Any]]:
    """Simulate the step with what each stage costs alone and a message takes, and tell these; or why not."""
    if not place.over_nccl or place.ranks < 2:
        where = "ranks share one GPU" if place.device.type == "cuda" else "ranks share the processor's cores"
        return None, {"not_tried": f"{NOT_TRIED}: {where}, whose times say nothing of a schedule"}
    if run.by == "library" and schedule.splits_backward:
        return None, {"not_tried": f"{NOT_TRIED}: the library's own I and W run only inside its schedule"}
    current_phase("timing each stage alone")
    assert isinstance(part.module, torch.nn.ModuleDict)
    costs = stage_costs(part.module, schedule, place, microbatches[0])
    room = room_for(part.module, microbatches[0], place)
    told: dict[str, Any] = {"costs_s": costs, "latency_s": time_message(run, place, room)}
    # By hand a receive is posted when the rank is free for it; the library posts most of them earlier, where
    # one that waits may keep the sends behind it.
    ways: dict[str, Any] = {"receive": "early", "queue": one_message_queue()}
    if run.by == "hand":
        told["beside_s"] = beside_costs(part.module, schedule, place, microbatches[0], room)
        ways = {"receive": "deferred", "beside": told["beside_s"]}
    return schedule.simulate(comm=told["latency_s"], **ways, **costs), told


def room_for(stages: torch.nn.ModuleDict, microbatch: MicroBatch, place: Place) -> Tensor:
    """Room for one message: the hidden states of a micro-batch."""
    stage: Any = next(iter(stages.values()))
    dtype = next(stage.parameters()).dtype
    return torch.zeros(*microbatch[0].shape, stage.spec.hidden, dtype=dtype, device=place.device)


def time_message(run: StrategyRun, place: Place, room: Tensor) -> float:
    """Seconds of one message, over such groups as the code sends it: two of one way each, or all ranks'."""
    if run.by == "library":
        return message_s(place, room, place.group, place.group)
    pair = dist.get_process_group_ranks(place.group)[:2]
    there, back = dist.new_group(pair), dist.new_group(pair)
    try:
        return message_s(place, room, there, back)
    finally:
        for group in (there, back):
            dist.destroy_process_group(group)  # pyright: ignore[reportArgumentType]


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
    return compare(place, clock, "emulated", simulated, unit_s)


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
    place: Place, clock: Timeline, source: str, predicted: Simulation | None, unit_s: float
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
    if predicted is not None:
        summary |= {
            "predicted_makespan_s": predicted.makespan * unit_s,
            "error": makespan_s / (predicted.makespan * unit_s) - 1,
            "errors": errors_by_kind([actions], predicted, unit_s),
        }
    rows = [{**row, "start_s": row["start_s"] - first_s, "source": source} for row in clock.rows]
    return PipelineStep(rows=rows, summary=summary, actions=actions)


def errors_by_kind(
    steps: Sequence[Sequence[Timed]], predicted: Simulation, unit_s: float
) -> dict[str, float]:
    """Mean of |measured / predicted − 1| over the actions of each kind that the simulation has too.

    An action's time is its median over the steps. The two of an overlapped pair count as one action of the
    kind `PAIR`, from the start of the first to the end of the last.
    """
    spans = [{op: (start_s, start_s + duration_s) for _, op, start_s, duration_s in step} for step in steps]
    kinds = {op: kind for kind, op, _, _ in steps[0]}
    found: dict[str, list[float]] = defaultdict(list)
    ids, overlapped = predicted.ids, np.append(predicted.overlapped, False)
    for row, cost in enumerate((predicted.duration * unit_s).tolist()):
        pair = ids[row : row + 2] if overlapped[row + 1] else ids[row : row + 1]
        if overlapped[row] or not cost or not all(op in kinds for op in pair):
            continue
        kind = PAIR if len(pair) > 1 else kinds[pair[0]]
        took_s = [max(one[op][1] for op in pair) - min(one[op][0] for op in pair) for one in spans]
        found[kind].append(abs(statistics.median(took_s) / cost - 1))
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
