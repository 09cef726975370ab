"""What a traced rank holds: the reference transformer or its stages, cut by the library code of a layout.

The model is cut on the meta device, outside fake mode, where a thousand shards of a weight cost nothing, and
then turned into fake tensors.
"""

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from playbook.models.checkpointed import checkpoint
from playbook.models.master_adamw import MasterAdamW
from playbook.models.transformer import Transformer
from playbook.runtime.part import Part, Place
from playbook.runtime.pipeline_levers import schedule_of
from playbook.runtime.torch_private import part
from playbook.runtime.traced_pipeline import ToldStages
from playbook.spec import Scenario
from playbook.strategies.fsdp2.ranks import precision_of

KERNELS = {
    "fused": {"fused": True},
    "foreach": {"foreach": True, "fused": False},
    "for-loop": {"foreach": False, "fused": False},
}


def nothing() -> Iterator[Tensor]:
    """Yield no tensor."""
    return iter(())


class Ready(NamedTuple):
    """A rank that can step: what it holds, its optimizer, the axis of each of its process groups by name, and
    the tensors that a library keeps for messages."""

    part: Part
    optimizer: torch.optim.Optimizer
    axes: dict[str, str]
    rooms: Callable[[], Iterator[Tensor]] = nothing


def prepare(scenario: Scenario, places: Mapping[str, Place]) -> Ready:
    """Build the model, apply the strategies of the layout, inner axis first, and give it an optimizer."""
    rooms = nothing
    if scenario.layout.pp > 1:
        found, rooms = pipelined(scenario, places)
    else:
        found = replicate(scenario, places, shard(scenario, places, Transformer))
    if scenario.workload.gradient_sync == "every":
        found.synchronise = lambda now: None
    axes = {str(place.group.group_name): axis for axis, place in places.items()}
    return Ready(found, make_optimizer(scenario, found.module, places.get("dp"), fake=True), axes, rooms)


def pipelined(scenario: Scenario, places: Mapping[str, Place]) -> tuple[Part, Callable[[], Iterator[Tensor]]]:
    """Build a pipeline rank's stages, cut each, and let the library's schedule run them."""
    pp, schedule = places["pp"], schedule_of(scenario, {})
    ranks: Any = import_module("playbook.strategies.pp.ranks")
    numbers = [stage for stage, owner in enumerate(schedule.placement) if owner == pp.rank]
    firsts = [sum(scenario.stage_layers[:stage]) for stage in range(len(scenario.stage_layers))]
    stages = nn.ModuleDict()
    for number in numbers:
        held = range(firsts[number], firsts[number] + scenario.stage_layers[number])
        cut_stage = shard(scenario, places, lambda model, held=held: Transformer(model, held))
        stages[str(number)] = replicate(scenario, places, cut_stage).module
    told = ToldStages(scenario)
    return ranks.by_library(stages, pp, schedule=schedule, stage_of=told), told.rooms


def replicate(scenario: Scenario, places: Mapping[str, Place], found: Part) -> Part:
    """Let gradients be averaged by DDP, where ranks are replicas; it takes no distributed parameters, so that
    torch lends it their local tensors."""
    if not replicated(scenario):
        return found
    if scenario.layout.tp > 1:
        lend_local(found.module)
    return library("ddp")(found.module, places["dp"])


def lend_local(module: Any) -> None:
    """Let DDP have the local tensors of distributed parameters, which each forward makes whole again.

    torch goes through the parameters by name, where a tied one comes once (torch 2.13, `tensor/parallel/
    ddp.py`): the head would keep the distributed tensor and DDP fail on it, so it is tied anew each time.
    """
    part("whole_to_local")(module)
    if module.spec.tied:
        tie(module)
        module.register_forward_pre_hook(tie)


def tie(module: Any, *_input: Any) -> None:
    """Let the head have what the token table has: a parameter, or the distributed tensor over it."""
    del module.lm_head.weight
    module.lm_head.weight = module.embed_tokens.weight


def replicated(scenario: Scenario) -> bool:
    """Whether ranks are replicas under DDP, which settles its buckets in the second step."""
    return scenario.layout.dp > 1 and scenario.layout.zero in (0, 1)


def shard(scenario: Scenario, places: Mapping[str, Place], build: Callable[[Any], Transformer]) -> Part:
    """Cut a model for tensor parallelism and FSDP2.

    Tied weights would come apart on the way from the meta device, so their model is fake from the start.
    """
    if scenario.model.tied:
        return cut(scenario, places, build(scenario.model))
    with part("real_tensors")():
        with torch.device("meta"):
            module = build(scenario.model)
        found = cut(scenario, places, module)
    module.to_empty(device="cpu")
    return found


def cut(scenario: Scenario, places: Mapping[str, Place], module: Transformer) -> Part:
    """Apply tensor parallelism, checkpointing and FSDP2 to a model, in this order."""
    layout = scenario.layout
    found = Part(module=module)
    if layout.tp > 1:
        found = library("tp")(module, places["tp"], sequence_parallel=layout.sequence_parallel)
    checkpoint([module], scenario.workload.recompute)
    if layout.zero == 3:
        how = {"reshard": layout.reshard, "precision": precision_of(scenario)}
        found = library("fsdp2")(module, places["dp"], **how)
    return found


def library(strategy: str) -> Callable[..., Part]:
    """Return the code of a strategy that goes by torch's own library."""
    return import_module(f"playbook.strategies.{strategy}.ranks").by_library


def make_optimizer(
    scenario: Scenario, module: nn.Module, dp: Place | None = None, *, fake: bool = False
) -> torch.optim.Optimizer:
    """AdamW, with masters where the recipe has them, or SGD where it has no moments.

    Distributed and plain parameters are in groups apart. Under ZeRO stage 1 the replicas share them out.
    """
    kind: Any = torch.optim.AdamW
    kernel: dict[str, Any] = {"lr": 1e-3, **KERNELS[scenario.workload.optimizer_kernel]}
    if scenario.recipe.moment_bytes == 0:
        kind = torch.optim.SGD
        if fake:  # fused SGD has no fake kernel (torch 2.13); without momentum no kernel makes a copy
            kernel |= KERNELS["foreach"]
    elif scenario.recipe.master_bytes:
        kind = MasterAdamW
    if scenario.layout.zero == 1 and dp is not None:
        return part("ZeroOptimizer")(module.parameters(), kind, process_group=dp.group, **kernel)
    kinds: dict[bool, list[nn.Parameter]] = {}
    for parameter in module.parameters():
        kinds.setdefault(isinstance(parameter, DTensor), []).append(parameter)
    return kind([{"params": each} for each in kinds.values()], **kernel)
