"""Balanced routing for a twin: every router's tokens take the experts in turn.

Weights of a twin are random, and so would be the choice of its routers, though the prediction takes it as
balanced. Scores, weights and gradients stay those of the router's own code, with its kernels and memory; only
which experts a token uses is put in place of the choice. How many tokens each expert gets is so known
beforehand: the same number, or one more for the first of them where tokens do not divide.
"""

from typing import Any

import torch
from torch import Tensor, nn

ROUTER = "TopKRouter"
"""How class names of Hugging Face's routers end."""


def take_turns(module: nn.Module) -> None:
    """Let every router of a Hugging Face model route in turn.

    Raises
    ------
    ValueError
        If the model has none, as with code of another version.
    """
    routers = [each for each in module.modules() if type(each).__name__.endswith(ROUTER)]
    if not routers:
        raise ValueError(
            f"no module of {type(module).__name__} is a {ROUTER}, so its routing cannot be balanced; "
            "use transformers of version 5.17 or later"
        )
    for router in routers:
        router.register_forward_hook(put_turns)


def put_turns(router: Any, _: Any, result: tuple[Tensor, Tensor, Tensor]) -> None:
    """Overwrite a router's choice, unseen by autograd, which then gives the scores' gradients to these."""
    choice_TK = result[-1]
    tokens, active = choice_TK.shape
    choice_TK.data.copy_(turns(tokens, active, router.weight.shape[0], choice_TK.device))


def turns(tokens: int, active: int, experts: int, device: torch.device | None = None) -> Tensor:
    """Experts of each token, one after the other over all of them. Shape: (T, K).

    Examples
    --------
    >>> turns(3, 2, 4).tolist()
    [[0, 1], [2, 3], [0, 1]]
    """
    return torch.arange(tokens * active, device=device).remainder_(experts).view(tokens, active)
