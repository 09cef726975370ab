"""Recomputation of the reference transformer, by torch's own checkpoints."""

from collections.abc import Iterable
from typing import Any

from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper


def checkpoint(models: Iterable[Any], recompute: str) -> None:
    """Let backward compute again what a mode of recomputation drops, in place.

    Parameters
    ----------
    models
        Transformers, or the stages of one.
    recompute
        "none"; "selective": every attention core keeps its queries, keys and values only; "full": every layer
        keeps its input only.
    """
    for model in models:
        for name, block in list(model.layers.items()):
            if recompute == "full":
                model.layers[name] = checkpoint_wrapper(block)
            elif recompute == "selective":
                block.self_attn.core = checkpoint_wrapper(block.self_attn.core)
