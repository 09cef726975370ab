"""One rank's real step, as the tracer runs it: a strategy's library code and an optimizer, recorded."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from playbook.frameworks import torch as torch_policy
from playbook.models.master_adamw import MASTER
from playbook.runtime.cuda_kernels import kernels_of
from playbook.runtime.fake_world import fake_world
from playbook.runtime.part import LOOK_AWAY, Watch
from playbook.runtime.pipeline_levers import schedule_of
from playbook.runtime.record import Record, record_step, recording
from playbook.runtime.trace_build import Ready, make_optimizer, prepare, replicated
from playbook.runtime.trace_memory import Ledger
from playbook.runtime.traced_pipeline import PipelineOwners
from playbook.spec import Scenario

__all__ = ["Ready", "make_optimizer", "open_ledger", "record_scenario", "take_step"]

CUDA_BLOCK_BYTES = 512
"""The CUDA allocator hands out whole multiples of this."""


def record_scenario(scenario: Scenario, rank: int) -> Record:
    """Run the step of one rank of a scenario under fake tensors and return what it did and held."""
    workload = scenario.workload
    dtype = torch.bfloat16 if scenario.recipe.parameter_bytes == 2 else torch.float32
    with (
        fake_world(degrees(scenario), rank) as places,
        kernels_of(workload.kernels, workload.attention),
        default_dtype(dtype),
    ):
        ready = prepare(scenario, places)
        batches = [tokens(scenario) for _ in range(scenario.microbatches)]
        warm = batches if ready.part.by_action else batches[:2]  # a library's schedule takes all or none
        for _ in range(2 if replicated(scenario) else 1):
            take_step(ready, warm)
        ledger = open_ledger(ready, workload.kernels)
        if ready.part.by_action:
            return record_pipeline(scenario, ready, batches, ledger)
        return record_step(lambda: take_step(ready, batches), ready.part.module, ready.axes, ledger=ledger)


def degrees(scenario: Scenario) -> dict[str, int]:
    """Ranks on each axis that the code knows, outermost first; data parallelism if there is no other."""
    layout = scenario.layout
    found = {axis: degree for axis, degree in reversed(layout.axes) if degree > 1}
    if layout.zero == 3 or not found:
        found.setdefault("dp", 1)
    order = [axis for axis, _ in reversed(layout.axes) if axis in found]
    assert math.prod(found.values()) == layout.world
    return {axis: found[axis] for axis in order}


def record_pipeline(
    scenario: Scenario, ready: Ready, batches: list[tuple[Tensor, Tensor]], ledger: Ledger
) -> Record:
    """Record a step that works action by action."""
    assert isinstance(ready.part.module, nn.ModuleDict)
    owners = PipelineOwners(ready.part.module, ledger, schedule_of(scenario, {}))
    with recording(owners, ready.axes, ledger) as recorder:
        take_step(ready, batches, owners)
    return Record(rows=tuple(recorder.rows), places=tuple(recorder.places), ledger=ledger)


def tokens(scenario: Scenario) -> tuple[Tensor, Tensor]:
    """Tokens and labels of one micro-batch; under fake tensors they hold nothing."""
    shape = (scenario.workload.micro_batch, scenario.workload.sequence)
    return torch.zeros(shape, dtype=torch.int64), torch.zeros(shape, dtype=torch.int64)


def take_step(ready: Ready, batches: list[tuple[Tensor, Tensor]], watch: Watch = LOOK_AWAY) -> None:
    """Forward and backward of every micro-batch, then the optimizer."""
    ready.part.forward_backward(batches, watch)
    ready.optimizer.step()
    ready.optimizer.zero_grad()


def open_ledger(ready: Ready, kernels: str) -> Ledger:
    """Enter what a rank holds between steps: parameters, optimizer state, rooms for messages, on a GPU cuBLAS
    workspaces."""
    ledger = Ledger(CUDA_BLOCK_BYTES if kernels == "cuda" else 1, kernels)
    if kernels == "cuda":
        ledger.reserve(torch_policy.POLICY.workspace_bytes, "workspace")
    for parameter in ready.part.module.parameters():
        ledger.own(parameter, "parameters")
    for group in ready.optimizer.param_groups:  # DDP may have taken them out of the module
        for parameter in group["params"]:
            ledger.own(parameter, "parameters")
    stepping = getattr(
        ready.optimizer, "optim", ready.optimizer
    )  # under ZeRO stage 1 that of the rank's share
    for state in stepping.state.values():
        for name, value in state.items():
            ledger.own(value, "master_weights" if name == MASTER else "optimizer")
    for room in ready.rooms():
        ledger.own(room, "communication_buffers")
    return ledger


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Make tensors of `dtype` by default while the context is open."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
