"""What a rank does for a strategy's run: check parity, count bytes and memory of a step, time other steps."""

import statistics
import time
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist

from playbook.models.batch import make_batch
from playbook.models.transformer import Transformer, seed_weights
from playbook.runtime.action_owners import ActionOwners, Together
from playbook.runtime.faults import planted
from playbook.runtime.memory import Allocator, Memory, tracked_memory
from playbook.runtime.miniature import SEQUENCE, miniature
from playbook.runtime.parity import DTYPES, Gate, Parity, Whole, check_step, expect_all
from playbook.runtime.part import LOOK_AWAY, Place, Watch, world
from playbook.runtime.pipeline_levers import schedule_of
from playbook.runtime.pipeline_rehearsal import rehearse
from playbook.runtime.pipeline_steps import PipelineStep, time_pipeline
from playbook.runtime.rank import current_phase, emit, here
from playbook.runtime.record import Record, record_step, recording
from playbook.runtime.strategy_build import build, check_averages
from playbook.runtime.strategy_run import StrategyRun
from playbook.runtime.torch_private import quiet_renamed_collectives
from playbook.runtime.trace_memory import Ledger
from playbook.runtime.trace_step import Ready, make_optimizer, open_ledger
from playbook.runtime.traffic import Call, TrafficCounter, calls_of, traffic_rows, traffic_summary
from playbook.spec import Scenario
from playbook.strategies import plan

ENOUGH_S = 0.6
"""No repeat begins after so much timed work; the ranks agree, since they all know the slowest one's times."""


def run_strategy(run: StrategyRun) -> dict[str, Any]:
    """Run one strategy on this rank: parity, then bytes and memory, time, and a pipeline's timeline."""
    quiet_renamed_collectives()
    seat, name = here(), run.scenario.model.name
    place = world(seat.device, plan(run.strategy).axis)
    current_phase("ranks up")
    check_averages(place)
    parity = check_parity(run, place) if run.parity != "off" else None
    step = MeasuredStep(run, place, "measured:nccl" if seat.backend == "nccl" else "measured:gloo")
    calls, memory = step.count()
    repeats_s = step.take_times()
    pipeline = step.pipeline()
    step.ready.part.close()
    tables = {
        "parity": parity.rows(name) if parity and place.rank == 0 else [],
        "traffic": [
            {"scenario": name, **row}
            for row in traffic_rows(calls, place.ranks, step=warm_ups(run), source=step.source)
        ],
        "memory": memory.rows(name),
        "timeline": [{"scenario": name, **row} for row in (pipeline.rows if pipeline else ())],
    }
    return {
        "parity": parity.summary() if parity else None,
        "seconds": statistics.median(repeats_s),
        "repeats_s": repeats_s,
        "traffic": traffic_summary(calls, place.ranks),
        "memory": memory.summary(),
        **({"pipeline": pipeline.summary} if pipeline else {}),
        "tables": tables,
    }


def warm_ups(run: StrategyRun) -> int:
    """Steps before the counted one: the first makes optimizer state, DDP's second its final buckets."""
    return 2 if (run.strategy, run.by) == ("ddp", "library") else 1


def check_parity(run: StrategyRun, place: Place) -> Parity:
    """Put the strategy through the gate: every seed, so many steps with each."""
    current_phase("parity")
    scenario = in_one_dtype(in_miniature(run.scenario) if run.parity == "miniature" else run.scenario)
    gate, dtype = Gate(run.dtype, scenario.model.name), DTYPES[run.dtype]
    with planted(run.fault, run.strategy):
        for turn, seed in enumerate(run.seeds):
            module = Transformer(scenario.model)
            seed_weights(module, seed)
            whole = Whole(module.to(place.device, dtype))
            expect_all(gate, whole)
            part = build(run, scenario, place, seed=seed, dtype=dtype)
            for step in range(run.steps):
                batch = batch_of(scenario, place, seed=1 + run.steps * seed + step)
                check_step(gate, part, whole, batch, place, scenario.microbatches)
                emit("progress", "parity", done=turn * run.steps + step + 1, total=len(run.seeds) * run.steps)
            part.close()
    return gate.close(place)


def in_one_dtype(scenario: Scenario) -> Scenario:
    """The scenario without mixed precision: the gate asks if the strategy is right, in the gate's dtype."""
    return replace(scenario, workload=replace(scenario.workload, recipe="fp32"))


def in_miniature(scenario: Scenario) -> Scenario:
    """The scenario with its model in miniature and a short sequence, one at a time."""
    layout = scenario.layout
    workload = replace(
        scenario.workload,
        sequence=SEQUENCE * layout.tp,
        micro_batch=1,
        global_batch=layout.dp * scenario.microbatches,
    )
    return replace(scenario, model=miniature(scenario.model, layout), workload=workload)


def batch_of(scenario: Scenario, place: Place, seed: int) -> Any:
    """The global batch of one step, the same on every rank."""
    return make_batch(
        scenario.model,
        sequences=scenario.global_batch,
        sequence=scenario.workload.sequence,
        seed=seed,
        device=place.device,
    )


class MeasuredStep:
    """One optimizer step of the run's own model in the recipe's dtype, ready to be counted and timed."""

    def __init__(self, run: StrategyRun, place: Place, source: str) -> None:
        current_phase("building the model")
        self.run, self.place, self.source = run, place, source
        scenario = run.scenario
        dtype = torch.bfloat16 if scenario.recipe.parameter_bytes == 2 else torch.float32
        part = build(run, scenario, place, seed=run.seeds[0], dtype=dtype)
        self.ready = Ready(part, make_optimizer(scenario, part.module), {place.group.group_name: place.axis})
        batch = batch_of(scenario, place, seed=0)
        own = batch.share(place.rank, place.ranks) if part.splits_batch else batch
        self.microbatches = own.cut(scenario.microbatches)
        current_phase("warming up")
        if part.by_action and place.over_nccl:
            assert isinstance(part.module, torch.nn.ModuleDict)
            order = schedule_of(scenario, run.own)
            split = run.by == "hand" and order.splits_backward
            rehearse(part.module, order, place.rank, self.microbatches, split=split)
        for _ in range(warm_ups(run)):
            self.take()

    def take(self, watch: Watch = LOOK_AWAY) -> None:
        """Forward and backward of every micro-batch, then the optimizer."""
        self.ready.part.forward_backward(self.microbatches, watch)
        watch.enter(-1, "O")
        self.ready.optimizer.step()
        self.ready.optimizer.zero_grad()

    def count(self) -> tuple[list[Call], Memory]:
        """Count the calls of one step and its memory; no time is taken meanwhile."""
        current_phase("counting bytes")
        cuda = self.place.device.type == "cuda"
        ledger = open_ledger(self.ready, self.place.device.type)
        if self.ready.part.by_action:
            calls, record = self.record_actions(ledger)
        else:
            record = record_step(self.take, self.ready.part.module, self.ready.axes, ledger=ledger)
            calls = calls_of(record)
        memory = tracked_memory(record)
        return calls, self.allocated(memory) if cuda else memory

    def record_actions(self, ledger: Ledger) -> tuple[list[Call], Record]:
        """Record a step that works action by action."""
        owners = ActionOwners(self.ready.part.module, ledger)
        counter = TrafficCounter(self.place.axis)
        with counter, recording(owners, self.ready.axes, ledger) as recorder:
            self.take(Together(counter, owners))
        record = Record(rows=tuple(recorder.rows), places=tuple(recorder.places), ledger=ledger)
        return counter.calls, record

    def allocated(self, tracked: Memory) -> Memory:
        """Take the allocator's peak of one more step."""
        allocator = Allocator(self.place.device)
        allocator.start()
        self.take()
        return allocator.stop(tracked, self.source)

    def take_times(self) -> list[float]:
        """Seconds of each repeat, from a common start to the end of the slowest rank."""
        current_phase("taking the time")
        found: list[float] = []
        while len(found) < self.run.repeats and sum(found) < ENOUGH_S:
            self.meet()
            start_s = time.monotonic()
            self.take()
            found.append(self.slowest(self.now() - start_s))
            emit("progress", "time", done=len(found), total=self.run.repeats)
        return found

    def now(self) -> float:
        """Clock after the device's work is done."""
        if self.place.device.type == "cuda":
            torch.cuda.synchronize(self.place.device)
        return time.monotonic()

    def meet(self) -> None:
        """Wait for every rank."""
        self.now()
        self.slowest(0.0)

    def slowest(self, seconds: float) -> float:
        """Largest of the ranks' numbers."""
        value = torch.tensor([seconds], dtype=torch.float64, device=self.place.device)
        dist.all_reduce(value, op=dist.ReduceOp.MAX, group=self.place.group)
        return value.item()

    def pipeline(self) -> PipelineStep | None:
        """Take one step with its actions on the clock, if it has any."""
        part = self.ready.part
        if not part.by_action:
            return None
        return time_pipeline(self.run, self.place, part, self.microbatches, self.source)
