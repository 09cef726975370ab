"""Reductions of a stage that torch.distributed.pipelining runs: all of them behind its last backward.

The library tells FSDP2 neither to free parameters nor to reduce gradients in any backward of a stage. Then it
goes through the units itself, root first and layers in order of depth: frees the parameters, lays the
gradients out and reduces them (`stage.py` of torch 2.13, `perform_reduce_grad`).
"""

from dataclasses import replace

from playbook.program.block import Block, Tensor, Weight
from playbook.program.op import END, At, Op, rows
from playbook.program.policy import Context
from playbook.program.state import flat_numel, partial_sums, shard_numel
from playbook.program.tensor_bytes import trainable
from playbook.strategies.fsdp2.rows import ADD, COPY_IN, FREE, REDUCE, mark, reductions


def reduced_after(block: Block, weights: tuple[Weight, ...], ctx: Context) -> Block:
    """Add a unit's gradients up at the end of each backward and reduce them in the segment behind the last.

    Parameters
    ----------
    block
        The first or only block of the unit.
    weights
        The unit's.
    ctx
        Of the rank.
    """
    adding: list[Op] = [replace(mark("B", ADD), for_weights=True), mark("B", FREE)]
    reducing = (
        mark("B", FREE),
        *partial_sums(weights, "B", ctx.recipe.reduce_bytes),
        mark("B", COPY_IN),
        *reductions(trainable(weights), ctx, "every"),
    )
    return replace(
        block,
        backward=rows((*block.backward, *adding)),
        copies=rows(reducing),
        tensors=(*block.tensors, *reduction_tensors(weights, ctx)),
    )


def reduction_tensors(weights: tuple[Weight, ...], ctx: Context) -> tuple[Tensor, ...]:
    """The reduction's input, kept until the next unit lets go of its parameters, and its output."""
    recipe = ctx.recipe
    given = Tensor(
        name="reduction input",
        term="communication_buffers",
        bytes=recipe.reduce_bytes * flat_numel(weights, ctx),
        birth=At("G", COPY_IN),
        bwd_end=At("G", FREE, 1, otherwise=END),
        when="step",
    )
    out = Tensor(
        name="gradient shard",
        term="gradients",
        bytes=recipe.gradient_bytes * shard_numel(weights, ctx),
        birth=At("G", REDUCE),
        bwd_end=At("O", END),
        when="step",
    )
    return given, out
