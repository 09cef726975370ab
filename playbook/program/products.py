"""Products with weights in a block: which there are, and which of them read a saved tensor."""

from collections.abc import Mapping

from playbook.program.block import Block, Tensor, Weight
from playbook.program.tensor_bytes import kind

FOR_INPUT, FOR_WEIGHT = "/mm#0", "/mm#1"
"""Rows of a product's backward: its only row in forward has the name of the first."""


def products(block: Block) -> dict[str, Weight]:
    """Projections by owner, in order of issue: matrices of a layer that a row of forward multiplies with."""
    weights = {
        weight.name.removesuffix(".weight"): weight for weight in block.weights if kind(weight) == "matrix"
    }
    return {op.owner: weights[op.owner] for op in block.forward if op.owner in weights and op.op == "mm"}


def readers(tensor: Tensor, block: Block, among: Mapping[str, Weight]) -> tuple[str, ...]:
    """Owners of the products that read a tensor which backward keeps for gradients of weights only."""
    if not tensor.saved or tensor.birth.block != 0 or not tensor.bwd_end.row.endswith(FOR_WEIGHT):  # type: ignore[union-attr]
        return ()
    names = [op.name for op in block.forward]
    if tensor.birth.row not in names or tensor.fwd_end.row not in names:  # type: ignore[union-attr]
        return ()
    first, last = names.index(tensor.birth.row), names.index(tensor.fwd_end.row)  # type: ignore[union-attr]
    owners = [op.owner for op in block.forward[first + 1 : last + 1] if op.op == "mm"]
    return tuple(owner for owner in owners if owner in among)
