"""One rank's real step, as the tracer runs it: a strategy's library code and an optimizer, recorded."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.tensor import DTensor

from playbook.frameworks import torch as torch_policy
from playbook.models.master_adamw import MASTER, MasterAdamW
from playbook.models.transformer import Transformer
from playbook.runtime.cuda_kernels import kernels_of
from playbook.runtime.fake_world import fake_world
from playbook.runtime.part import Part, Place
from playbook.runtime.record import Record, record_step
from playbook.runtime.torch_private import part
from playbook.runtime.trace_memory import Ledger
from playbook.spec import Scenario
from playbook.strategies.fsdp2.ranks import precision_of

CUDA_BLOCK_BYTES = 512
"""The CUDA allocator hands out whole multiples of this."""

KERNELS = {
    "fused": {"fused": True},
    "foreach": {"foreach": True, "fused": False},
    "for-loop": {"foreach": False, "fused": False},
}


class Ready(NamedTuple):
    """A rank that can step: what it holds, its optimizer, and the names of its process groups."""

    part: Part
    optimizer: torch.optim.Optimizer
    axes: dict[str, str]


def record_scenario(scenario: Scenario, rank: int) -> Record:
    """Run the step of one rank of a scenario under fake tensors and return what it did and held."""
    layout, workload = scenario.layout, scenario.workload
    degrees = {axis: degree for axis, degree in (("dp", layout.dp), ("tp", layout.tp)) if degree > 1}
    dtype = torch.bfloat16 if scenario.recipe.parameter_bytes == 2 else torch.float32
    with (
        fake_world(degrees or {"dp": 1}, rank) as places,
        kernels_of(workload.kernels, workload.attention),
        default_dtype(dtype),
    ):
        ready = prepare(scenario, places)
        batches = [tokens(scenario) for _ in range(scenario.microbatches)]
        for _ in range(2 if replicated(scenario) else 1):
            take_step(ready, batches[:2])
        ledger = open_ledger(ready, workload.kernels)
        return record_step(lambda: take_step(ready, batches), ready.part.module, ready.axes, ledger=ledger)


def prepare(scenario: Scenario, places: dict[str, Place]) -> Ready:
    """Build the model, apply the strategies of the layout, inner axis first, and give it an optimizer."""
    found = shard(scenario, places)
    if replicated(scenario):
        found = library("ddp")(found.module, places["dp"])
    if scenario.workload.gradient_sync == "every":
        found.synchronise = lambda now: None
    axes = {str(place.group.group_name): axis for axis, place in places.items()}
    return Ready(found, make_optimizer(scenario, found.module), axes)


def replicated(scenario: Scenario) -> bool:
    """Whether ranks are replicas under DDP, which settles its buckets in the second step."""
    return scenario.layout.dp > 1 and scenario.layout.zero == 0


def shard(scenario: Scenario, places: dict[str, Place]) -> Part:
    """Cut the model for tensor parallelism and FSDP2.

    That is done on the meta device, outside fake mode, where a thousand shards of a weight cost nothing, and
    then turned into fake tensors. Tied weights would come apart then, so their model is fake from the start.
    """
    if scenario.model.tied:
        return cut(scenario, places, Transformer(scenario.model))
    with part("real_tensors")():
        with torch.device("meta"):
            module = Transformer(scenario.model)
        found = cut(scenario, places, module)
    module.to_empty(device="cpu")
    return found


def cut(scenario: Scenario, places: dict[str, Place], module: Transformer) -> Part:
    """Apply tensor parallelism, checkpointing and FSDP2 to a model, in this order."""
    layout = scenario.layout
    found = Part(module=module)
    if layout.tp > 1:
        found = library("tp")(module, places["tp"], sequence_parallel=layout.sequence_parallel)
    if scenario.workload.recompute == "full":
        for name, block in list(module.layers.items()):
            module.layers[name] = checkpoint_wrapper(block)
    if layout.dp > 1 and layout.zero == 3:
        how = {"reshard": layout.reshard, "precision": precision_of(scenario)}
        found = library("fsdp2")(module, places["dp"], **how)
    return found


def library(strategy: str) -> Callable[..., Part]:
    """Return the code of a strategy that goes by torch's own library."""
    return import_module(f"playbook.strategies.{strategy}.ranks").by_library


def make_optimizer(scenario: Scenario, module: nn.Module) -> torch.optim.Optimizer:
    """AdamW, with masters where the recipe has them, or SGD where it has no moments.

    Distributed and plain parameters are in groups apart.
    """
    kinds: dict[bool, list[nn.Parameter]] = {}
    for parameter in module.parameters():
        kinds.setdefault(isinstance(parameter, DTensor), []).append(parameter)
    groups = [{"params": parameters} for parameters in kinds.values()]
    kernel: dict[str, Any] = KERNELS[scenario.workload.optimizer_kernel]
    if scenario.recipe.moment_bytes == 0:
        return torch.optim.SGD(groups, lr=1e-3, **kernel)
    if scenario.recipe.master_bytes:
        return MasterAdamW(groups, lr=1e-3, **kernel)
    return torch.optim.AdamW(groups, lr=1e-3, **kernel)


def tokens(scenario: Scenario) -> tuple[Tensor, Tensor]:
    """Tokens and labels of one micro-batch; under fake tensors they hold nothing."""
    shape = (scenario.workload.micro_batch, scenario.workload.sequence)
    return torch.zeros(shape, dtype=torch.int64), torch.zeros(shape, dtype=torch.int64)


def take_step(ready: Ready, batches: list[tuple[Tensor, Tensor]]) -> None:
    """Forward and backward of every micro-batch, then the optimizer."""
    ready.part.forward_backward(batches)
    ready.optimizer.step()
    ready.optimizer.zero_grad()


def open_ledger(ready: Ready, kernels: str) -> Ledger:
    """Enter what a rank holds between steps: parameters, optimizer state, on a GPU cuBLAS workspaces."""
    ledger = Ledger(CUDA_BLOCK_BYTES if kernels == "cuda" else 1)
    if kernels == "cuda":
        ledger.reserve(torch_policy.POLICY.workspace_bytes, "workspace")
    for parameter in ready.part.module.parameters():
        ledger.own(parameter, "parameters")
    for state in ready.optimizer.state.values():
        for name, value in state.items():
            ledger.own(value, "master_weights" if name == MASTER else "optimizer")
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
