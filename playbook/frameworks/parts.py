"""Pieces that policies share: rows of forward and backward, saved tensors, weights with the row that
completes them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from playbook.program.block import Junction, Tensor, Weight
from playbook.program.op import END, At, Op, Region, Size
from playbook.spec import Parameter


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Rows and tensors of a part of a block, from which a policy puts the block together."""

    forward: tuple[Op, ...] = ()
    backward: tuple[Op, ...] = ()
    tensors: tuple[Tensor, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch(Piece):
    """A part of a layer beside the residual stream: attention, or what stands for the feed-forward part.

    Parameters
    ----------
    reads
        Row of forward that reads its input last, and row of backward that needs the input last.
    ends
        Row of forward that makes its output.
    junctions
        Its tensor-parallel parts.
    """

    reads: tuple[str, str]
    ends: str
    junctions: tuple[Junction, ...] = ()


def forward(owner: str, op: str, flops: Size = 0, region: Region = "full", group: str = "") -> Op:
    """One row of forward."""
    return Op(owner=owner, op=op, phase="F", flops=flops, region=region, group=group)


def backward(owner: str, op: str, flops: Size = 0, region: Region = "full", group: str = "") -> Op:
    """One row of backward."""
    return Op(owner=owner, op=op, phase="B", flops=flops, region=region, group=group)


def for_weights(op: Op) -> Op:
    """The same row of backward, as one that only makes gradients of weights."""
    return replace(op, for_weights=True)


def product_backward(owner: str, flops: Size, region: Region) -> tuple[Op, Op]:
    """A product's backward: once for its input, once for its weight."""
    row = backward(owner, "mm", flops, region)
    return row, for_weights(row)


def saved(
    name: str, size: Size, birth: str, last_use: str, release: str, region: Region, group: str = ""
) -> Tensor:
    """A tensor of this block that forward keeps for backward, by the names of its three rows."""
    return Tensor(
        name=name,
        term="activations",
        bytes=size,
        birth=At("F", birth),
        fwd_end=At("F", last_use),
        bwd_end=At("B", release),
        region=region,
        group=group,
    )


def kept_gradient(name: str, size: Size, birth: str, release: str, region: Region) -> Tensor:
    """The gradient of a product's output, which waits in memory of its own for the product for the weight.

    Where backward is not split it is one of the temporaries that the papers leave out.
    """
    return Tensor(
        name=f"gradient of {name}",
        term="temporary",
        bytes=size,
        birth=At("B", birth),
        weight_end=At("B", release),
        split_only=True,
        region=region,
    )


def passing(
    name: str, size: Size, birth: str, last_use: str, region: Region, term: str = "activations"
) -> Tensor:
    """A tensor of forward that dies there."""
    return Tensor(
        name=name, term=term, bytes=size, birth=At("F", birth), fwd_end=At("F", last_use), region=region
    )


def passing_back(
    name: str, size: Size, birth: str, last_use: str, region: Region, term: str = "temporary"
) -> Tensor:
    """A temporary of backward."""
    return Tensor(
        name=name,
        term="temporary",
        bytes=size,
        birth=At("B", birth),
        bwd_end=At("B", last_use),
        region=region,
    )


def block_input(size: Size, last_use: str, release: str | None) -> Tensor:
    """The residual stream that the block before hands in; saved for backward if a release is given."""
    return Tensor(
        name="input",
        term="activations",
        bytes=size,
        birth=At("F", END, -1),
        fwd_end=At("F", last_use),
        bwd_end=At("B", release) if release else None,
        region="full",
    )


def block_gradient(size: Size, last_use: str) -> Tensor:
    """The gradient of the residual stream that the block after hands back."""
    born = At("B", END, 1)
    return Tensor(
        name="gradient", term="temporary", bytes=size, birth=born, bwd_end=At("B", last_use), region="full"
    )


def weights(parameters: tuple[Parameter, ...], ready: Mapping[str, str]) -> tuple[Weight, ...]:
    """Parameters with the row of backward that completes the gradient of each.

    Raises
    ------
    ValueError
        If a parameter has no row: the policy does not know this kind of model.
    """
    missing = [p.name for p in parameters if p.name not in ready]
    if missing:
        raise ValueError(f"no row of backward makes the gradient of {missing[0]!r}; give one in the policy")
    return tuple(
        Weight(name=p.name, shape=p.shape, tp_dim=p.tp_dim, expert=p.expert, ready=At("B", ready[p.name]))
        for p in parameters
    )
