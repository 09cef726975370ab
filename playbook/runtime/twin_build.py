"""A twin's modules: made on the meta device, and made real on one device once they are cut.

Weights of a size that one GPU could never hold whole are so built as the rank's own shards only, and filled
with normal values: the speed of a matrix product depends on its data.
"""

import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from playbook.models.transformer import Transformer
from playbook.runtime.twin_models import hugging_face
from playbook.spec import Scenario

WEIGHT_STD = 0.02
"""Standard deviation of every weight that is no norm's."""


def make_module(scenario: Scenario, build: str | None) -> Any:
    """Make the model, on the meta device: a user's own, Hugging Face's or the reference transformer.

    Raises
    ------
    ValueError
        If the model was not built to the last parameter; with both counts.
    """
    with on_meta():
        if build is not None:
            return load_build(build)()
        hugging = scenario.framework == "transformers"
        module = hugging_face(scenario.model) if hugging else Transformer(scenario.model)
    refuse_other_count(scenario, module)
    return module


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
