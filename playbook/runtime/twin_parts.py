"""What the twin's rank holds: a model cut by the library code of its layout, with real weights."""

from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import fully_shard

from playbook.models.transformer import Transformer, loss_of
from playbook.runtime.part import MicroBatch, Part, Place, Watch
from playbook.runtime.pipeline_levers import schedule_of
from playbook.runtime.trace_build import Ready, cut, library, make_optimizer, nothing, replicate
from playbook.runtime.traced_pipeline import ToldStages
from playbook.runtime.twin_build import make_module, make_real, on_meta
from playbook.runtime.twin_scope import by_library
from playbook.spec import Scenario
from playbook.strategies.fsdp2.ranks import precision_of

Places = Mapping[str, Place]


def prepare_twin(scenario: Scenario, places: Places, device: torch.device, build: str | None = None) -> Ready:
    """Build what one rank holds, and give it an optimizer.

    Parameters
    ----------
    scenario
        Model, recipe and layout.
    places
        The rank's place on each axis that has more than one rank.
    device
        Where the weights go.
    build
        `FILE.py:FUNCTION` that returns a module of the user's own, in the place of the scenario's model.
    """
    rooms = nothing
    if build is not None or scenario.framework == "transformers":
        part = other_part(scenario, places, make_module(scenario, build), device)
    elif scenario.layout.pp > 1:
        part, rooms = pipeline_part(scenario, places, device)
    else:
        part = cut(scenario, places, module := make_module(scenario, None))
        make_real(module, device)
        part = replicate(scenario, places, part)
    if scenario.workload.gradient_sync == "every":
        part.synchronise = lambda now: None
    axes = {str(place.group.group_name): axis for axis, place in places.items()}
    return Ready(part, make_optimizer(scenario, part.module, places.get("dp")), axes, rooms)


def pipeline_part(scenario: Scenario, places: Places, device: torch.device) -> tuple[Part, Any]:
    """Build a pipeline rank's stages; the library runs them, or our own loop an order it does not have."""
    pp, schedule = places["pp"], schedule_of(scenario, {})
    firsts = [sum(scenario.stage_layers[:stage]) for stage in range(len(scenario.stage_layers))]
    stages = nn.ModuleDict()
    for number, owner in enumerate(schedule.placement):
        if owner == pp.rank:
            depth = schedule.model_stage(number)
            with on_meta():
                held = range(firsts[depth], firsts[depth] + scenario.stage_layers[depth])
                stage = Transformer(scenario.model, held)
            found = cut(scenario, places, stage)
            make_real(stage, device)
            stages[str(number)] = replicate(scenario, places, found).module
    ranks: Any = import_module("playbook.strategies.pp.ranks")
    if not by_library(scenario):
        return ranks.by_hand(stages, pp, schedule=schedule), nothing
    told = ToldStages(scenario)
    return ranks.by_library(stages, pp, schedule=schedule, stage_of=told), told.rooms


def other_part(scenario: Scenario, places: Places, module: Any, device: torch.device) -> Part:
    """Share out a model that is not ours: its repeated layers are the units of FSDP2."""
    layout, layers = scenario.layout, repeated_layers(module)
    if scenario.workload.recompute == "full":
        for index, layer in enumerate(layers):
            layers[index] = checkpoint_wrapper(layer)
    sharded: Any = None
    if layout.zero == 3:
        shard = partial(
            fully_shard,
            mesh=places["dp"].mesh,
            reshard_after_forward=layout.reshard,
            mp_policy=precision_of(scenario),
        )
        for layer in layers:
            shard(layer)
        sharded = shard(module)
    make_real(module, device)
    module.train()
    part = Part(module=module)
    if sharded is not None:
        part = Part(module=module, synchronise=sharded.set_requires_gradient_sync)
    elif layout.dp > 1:
        part = library("ddp")(module, places["dp"])
    part.run = partial(run_other, part)
    return part


def run_other(part: Part, microbatches: Sequence[MicroBatch], watch: Watch) -> Tensor:
    """Accumulate gradients over micro-batches of a model that may make its own loss."""
    losses = []
    for index, (tokens, labels) in enumerate(microbatches):
        part.synchronise(index == len(microbatches) - 1)
        watch.enter(index, "F")
        loss = loss_by(part.module, tokens, labels) / len(microbatches)
        watch.enter(index, "B")
        loss.backward()
        losses.append(loss.detach())
    return torch.stack(losses).sum()


def loss_by(module: nn.Module, tokens: Tensor, labels: Tensor) -> Tensor:
    """Loss of Hugging Face's call, or of logits (B, S, V) that a model gives for tokens (B, S)."""
    inner = getattr(module, "module", module)
    if hasattr(inner, "config") and hasattr(inner, "generate"):
        return module(input_ids=tokens, labels=labels, use_cache=False).loss
    found = module(tokens)
    return loss_of(getattr(found, "logits", found), labels)


def repeated_layers(module: nn.Module) -> Any:
    """The longest list of modules: a transformer's layers."""
    lists = [child for child in module.modules() if isinstance(child, nn.ModuleList)]
    return max(lists, key=len, default=nn.ModuleList())
