"""Small models and steps that the recorder's and the tracer's tests share."""

from collections.abc import Callable

import torch
from torch import nn

from playbook.models.transformer import Transformer, loss_of, seed_weights
from playbook.spec import Model


def small(layers: int = 2, **sizes) -> Model:
    base = {
        "hidden": 32,
        "heads": 4,
        "kv_heads": 2,
        "head_dim": 8,
        "ffn": 48,
        "vocabulary": 64,
        "max_sequence": 64,
    }
    return Model(name="small", family="llama", layers=layers, **{**base, **sizes})


def transformer(layers: int = 2, **sizes) -> Transformer:
    module = Transformer(small(layers, **sizes))
    seed_weights(module, 0)
    return module


def step_of(
    module: nn.Module, optimizer: torch.optim.Optimizer | None = None, microbatches: int = 1
) -> Callable[[], None]:
    """Return a whole training step over fixed tokens, two sequences of sixteen tokens a micro-batch."""
    tokens = torch.arange(32).remainder(64).view(2, 16)

    def step() -> None:
        for _ in range(microbatches):
            loss_of(module(tokens), tokens).backward()
        if optimizer is not None:
            optimizer.step()
        module.zero_grad()

    return step
