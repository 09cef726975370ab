"""Backward in two parts: the gradient of a stage's input at once, the weights' products when they suit.

Autograd runs both together. Here a layer's backward gives its input's gradient and leaves the weight's
product, with the two tensors that it needs, in a store: a pipeline schedule calls the first part I (the stage
before waits for it) and the second W (nobody does). What else the forward saved is freed in I.

The weight itself is no saved tensor: recompute would hand a copy back, whose gradient nobody reads.

Shape suffixes: N tokens, of any leading dims; I in-features, O out-features, D hidden, V vocabulary.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import Function

from playbook.models.transformer import RMSNorm


class Products(list[Callable[[], None]]):
    """Products of one micro-batch on one stage that wait for their turn."""

    @torch.no_grad()
    def compute(self) -> None:
        """Compute them all and add them to the weights' gradients; each frees its tensors at once."""
        while self:
            self.pop()()


class Later:
    """Takes the weights' products of a backward, and computes them at once unless they are put off."""

    def __init__(self) -> None:
        self._waiting: Products | None = None

    @contextmanager
    def putting_off(self, wanted: bool = True) -> Iterator[Products]:
        """Let the products of the backward that runs inside wait, if that is wanted; yields them."""
        products = Products()
        self._waiting = products if wanted else None
        try:
            yield products
        finally:
            self._waiting = None

    def take(self, product: Callable[[], None]) -> None:
        """Compute a product, or let it wait."""
        if self._waiting is None:
            product()
        else:
            self._waiting.append(product)


class LinearApart(Function):
    """Linear layer. Shapes: x_NI, weight_OI -> (N, O)."""

    @staticmethod
    def forward(ctx: Any, x_NI: Tensor, weight_OI: Tensor, bias_O: Tensor | None, later: Later) -> Tensor:
        """Multiply, and keep the input for W and the weight for I."""
        ctx.save_for_backward(x_NI)
        ctx.weight_OI, ctx.bias_O, ctx.later = weight_OI, bias_O, later
        return F.linear(x_NI, weight_OI, bias_O)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, None, None, None]:
        """Give the input's gradient, and hand the weight's product over."""
        (gradient_NO,) = gradients
        (x_NI,) = ctx.saved_tensors
        ctx.later.take(partial(add_linear, ctx.weight_OI, ctx.bias_O, x_NI.detach(), gradient_NO))
        return (gradient_NO @ ctx.weight_OI if ctx.needs_input_grad[0] else None), None, None, None


class ScaleApart(Function):
    """Product with one weight a feature. Shapes: x_ND, weight_D -> (N, D)."""

    @staticmethod
    def forward(ctx: Any, x_ND: Tensor, weight_D: Tensor, later: Later) -> Tensor:
        """Multiply, and keep the input for W and the weight for I."""
        ctx.save_for_backward(x_ND)
        ctx.weight_D, ctx.later = weight_D, later
        return weight_D * x_ND

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, None, None]:
        """Give the input's gradient, and hand the weight's product over."""
        (gradient_ND,) = gradients
        (x_ND,) = ctx.saved_tensors
        ctx.later.take(partial(add_scale, ctx.weight_D, x_ND.detach(), gradient_ND))
        return (gradient_ND * ctx.weight_D if ctx.needs_input_grad[0] else None), None, None


class LookupApart(Function):
    """Token table. Shapes: tokens_N, weight_VD -> (N, D)."""

    @staticmethod
    def forward(ctx: Any, tokens_N: Tensor, weight_VD: Tensor, later: Later) -> Tensor:
        """Look the tokens up."""
        ctx.save_for_backward(tokens_N)
        ctx.weight_VD, ctx.later = weight_VD, later
        return F.embedding(tokens_N, weight_VD)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None, None]:
        """Hand the sum over equal tokens over; tokens have no gradient."""
        (gradient_ND,) = gradients
        (tokens_N,) = ctx.saved_tensors
        ctx.later.take(partial(add_lookup, ctx.weight_VD, tokens_N, gradient_ND))
        return None, None, None


def add_linear(weight_OI: Tensor, bias_O: Tensor | None, x_NI: Tensor, gradient_NO: Tensor) -> None:
    """Add a linear layer's products to its gradients."""
    flat_NO = gradient_NO.flatten(0, -2)
    accumulate(weight_OI, flat_NO.T @ x_NI.flatten(0, -2))
    if bias_O is not None:
        accumulate(bias_O, flat_NO.sum(0))


def add_scale(weight_D: Tensor, x_ND: Tensor, gradient_ND: Tensor) -> None:
    """Add a scale's product to its gradient."""
    accumulate(weight_D, (gradient_ND * x_ND).flatten(0, -2).sum(0))


def add_lookup(weight_VD: Tensor, tokens_N: Tensor, gradient_ND: Tensor) -> None:
    """Add every token's gradient to its row."""
    rows = torch.ops.aten.embedding_dense_backward(gradient_ND, tokens_N, weight_VD.shape[0], -1, False)
    accumulate(weight_VD, rows)


def accumulate(weight: Tensor, gradient: Tensor) -> None:
    """Add to a weight's gradient, as autograd does."""
    if weight.grad is None:
        weight.grad = gradient
    else:
        weight.grad += gradient


def linear(layer: nn.Linear, later: Later, x_NI: Tensor) -> Tensor:
    """Forward of a linear layer."""
    return LinearApart.apply(x_NI, layer.weight, layer.bias, later)  # pyright: ignore[reportReturnType]


def norm(layer: RMSNorm, later: Later, x_ND: Tensor) -> Tensor:
    """Forward of a norm: only its scale has a weight."""
    return ScaleApart.apply(layer.normalised(x_ND), layer.weight, later)  # pyright: ignore[reportReturnType]


def lookup(layer: nn.Embedding, later: Later, tokens_N: Tensor) -> Tensor:
    """Forward of a token table."""
    return LookupApart.apply(tokens_N, layer.weight, later)  # pyright: ignore[reportReturnType]


FORWARDS: dict[type[nn.Module], Callable[..., Tensor]] = {
    nn.Linear: linear,
    RMSNorm: norm,
    nn.Embedding: lookup,
}
"""Forward that leaves the weight's product apart, of each kind of layer that has weights."""


def put_off(module: nn.Module, wanted: bool = True) -> Later:
    """Make the backward of every layer in a module leave its weights' products to a `Later`.

    Doing so twice is the same as once. Nothing changes if it is not `wanted`.

    Raises
    ------
    TypeError
        If a layer has weights and is of another kind than `FORWARDS`.
    """
    found = getattr(module, "later", None)
    later = found if isinstance(found, Later) else Later()
    if not wanted or later is found:
        return later
    for name, layer in module.named_modules():
        if next(layer.parameters(recurse=False), None) is None:
            continue
        if type(layer) not in FORWARDS:
            kinds = ", ".join(kind.__name__ for kind in FORWARDS)
            raise TypeError(
                f"{name} is a {type(layer).__name__}, whose backward is not taken apart; use {kinds}, or a "
                "schedule without I and W such as 1f1b"
            )
        layer.forward = partial(FORWARDS[type(layer)], layer, later)
    module.later = later  # type: ignore[assignment]
    return later
