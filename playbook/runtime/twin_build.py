"""What the twin's rank holds: a model cut by the layout on the meta device, then made real on one device.

Weights of a size that one GPU could never hold whole are so built as the rank's own shards only, and filled
with normal values: the speed of a matrix product depends on its data.
"""

import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from playbook.models.transformer import Transformer, loss_of
from playbook.runtime.part import MicroBatch, Part, Place, Watch
from playbook.runtime.twin_models import hugging_face
from playbook.spec import Scenario
from playbook.strategies.ddp.ranks import by_library as replicate
from playbook.strategies.fsdp2.ranks import by_library as shard_transformer
from playbook.strategies.fsdp2.ranks import precision_of
from playbook.strategies.tp.ranks import by_library as split_tensors

WEIGHT_STD = 0.02
"""Standard deviation of every weight that is no norm's."""


def build_part(
    scenario: Scenario, places: Mapping[str, Place], device: torch.device, build: str | None = None
) -> Part:
    """Build what one rank holds, its weights on `device`.

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
    with on_meta():
        module = make_module(scenario, build)
    if build is None:
        refuse_other_count(scenario, module)
    if build is None and scenario.framework != "transformers":
        return transformer_part(scenario, places, module, device)
    return other_part(scenario, places, module, device)


def make_module(scenario: Scenario, build: str | None) -> Any:
    """The model: a user's own, Hugging Face's or the reference transformer."""
    if build is not None:
        return load_build(build)()
    return (
        hugging_face(scenario.model) if scenario.framework == "transformers" else Transformer(scenario.model)
    )


def refuse_other_count(scenario: Scenario, module: nn.Module) -> None:
    """Refuse a model that was not built to the last parameter.

    Raises
    ------
    ValueError
        With both counts.
    """
    built, exact = sum(p.numel() for p in module.parameters()), scenario.model.parameters
    if built != exact:
        raise ValueError(
            f"model {scenario.model.name} was built with {built} parameters but has {exact}: its twin would "
            "be another model's; use framework='textbook' or 'transformers', whichever builds it exactly"
        )


def transformer_part(
    scenario: Scenario, places: Mapping[str, Place], module: Transformer, device: torch.device
) -> Part:
    """Cut the reference transformer by the layout: products, then recompute, then state."""
    layout, part = scenario.layout, Part(module=module)
    if layout.tp > 1:
        part = split_tensors(module, places["tp"], sequence_parallel=layout.sequence_parallel)
    if scenario.workload.recompute == "full":
        for name, block in list(module.layers.items()):
            module.layers[name] = checkpoint_wrapper(block)
    if layout.dp > 1 and layout.zero == 3:
        how = {"reshard": layout.reshard, "precision": precision_of(scenario)}
        part = shard_transformer(module, places["dp"], **how)
    make_real(module, device)
    if layout.dp > 1 and layout.zero < 3:
        part = replicate(module, places["dp"])
    return part


def other_part(scenario: Scenario, places: Mapping[str, Place], module: Any, device: torch.device) -> Part:
    """Share out a model that is not ours: its repeated layers are the units of FSDP2."""
    layout, layers = scenario.layout, repeated_layers(module)
    if scenario.workload.recompute == "full":
        for index, layer in enumerate(layers):
            layers[index] = checkpoint_wrapper(layer)
    sharded: Any = None
    if layout.dp > 1 and layout.zero == 3:
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
        part = replicate(module, places["dp"])
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


def make_real(module: nn.Module, device: torch.device) -> None:
    """Give every parameter memory on a device and normal values; tied ones stay one."""
    same: dict[int, list[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        same.setdefault(id(parameter), []).append(name)
    module._apply(lambda t: torch.empty_like(t, device=device) if t.is_meta else t.to(device))
    for first, *others in same.values():
        for name in others:
            owner, _, attribute = name.rpartition(".")
            setattr(module.get_submodule(owner), attribute, module.get_parameter(first))
    fill_weights(module)


@torch.no_grad()
def fill_weights(module: nn.Module) -> None:
    """Fill norms with ones and everything else with normal values."""
    for name, parameter in module.named_parameters():
        local = parameter.to_local() if isinstance(parameter, DTensor) else parameter
        if name.endswith("norm.weight"):
            local.fill_(1.0)
        else:
            local.normal_(0.0, WEIGHT_STD)


@contextmanager
def on_meta() -> Iterator[None]:
    """Make every parameter on the meta device while the context is open; buffers hold values and stay."""
    plain: Callable[..., None] = nn.Module.register_parameter

    def register(self: nn.Module, name: str, param: nn.Parameter | None) -> None:
        if param is not None and not param.is_meta:
            param = nn.Parameter(param.to("meta"), requires_grad=param.requires_grad)
        plain(self, name, param)

    nn.Module.register_parameter = register
    try:
        yield
    finally:
        nn.Module.register_parameter = plain


def load_build(text: str) -> Callable[[], nn.Module]:
    """Load the function that `FILE.py:FUNCTION` names.

    Raises
    ------
    ValueError
        If there is no such file or function.
    """
    file, _, name = text.rpartition(":")
    path = Path(file)
    if not file.endswith(".py") or not path.is_file():
        raise ValueError(f"build={text!r}: no such file; give FILE.py:FUNCTION, such as model.py:build")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    if not callable(getattr(module, name, None)):
        raise ValueError(f"build={text!r}: {path.name} has no function {name!r}; it must return an nn.Module")
    return getattr(module, name)
