"""Saved inputs of projections in a narrower dtype than forward's: FP8 products keep what they multiplied.

A tensor that only gradients of weights need is kept in the narrow dtype. One that another row of backward
reads too (flash attention's output) stays as it is, and its product keeps a narrow copy beside it. Router,
head and tables compute in the recipe's dtype.

Source: Micikevicius et al., FP8 Formats for Deep Learning, 2022; what Transformer Engine's `Linear` saves.
"""

from dataclasses import replace

from playbook.program.block import Block, Tensor, Weight
from playbook.program.op import At, Size
from playbook.program.passes import Blocks, each
from playbook.program.polynomial import scaled
from playbook.program.products import FOR_WEIGHT, products, readers
from playbook.spec import Recipe

ROUTER = "mlp.gate"


def narrow_inputs(blocks: Blocks, recipe: Recipe) -> Blocks:
    """Keep the inputs of projections in the recipe's bytes for them, where it has such."""
    if recipe.input_bytes is None:
        return blocks
    return each(blocks, lambda block: narrow_block(block, recipe))


def narrow_block(block: Block, recipe: Recipe) -> Block:
    """Narrow the inputs of one block's projections."""
    found = products(block)
    tensors: list[Tensor] = []
    for tensor in block.tensors:
        read_by = readers(tensor, block, found)
        if read_by and ROUTER not in read_by:
            tensors.append(replace(tensor, bytes=narrow(tensor.bytes, recipe)))
        else:
            tensors += (tensor, *copy_for(tensor, found, recipe))
    return replace(block, tensors=tuple(tensors))


def copy_for(tensor: Tensor, found: dict[str, Weight], recipe: Recipe) -> tuple[Tensor, ...]:
    """The narrow copy of a product's input that backward keeps for another row too."""
    if not tensor.saved or tensor.birth.block != 0:
        return ()
    assert tensor.fwd_end is not None
    assert tensor.bwd_end is not None
    owner = tensor.fwd_end.row.partition("/")[0]
    reads = owner in found and tensor.fwd_end.row == f"{owner}/mm#0"
    if not reads or tensor.bwd_end.row.endswith(FOR_WEIGHT) or owner == ROUTER:
        return ()
    own = replace(tensor, name=f"{owner} input", bytes=narrow(tensor.bytes, recipe), birth=tensor.fwd_end)
    return (replace(own, bwd_end=At("B", f"{owner}{FOR_WEIGHT}"), weight_end=None),)


def narrow(size: Size, recipe: Recipe) -> Size:
    """A size of values of forward in the dtype of products' inputs."""
    assert recipe.input_bytes is not None
    return scaled(size, recipe.input_bytes, recipe.compute_bytes)
