"""Whole gradients under FSDP2: from the row that completes each to the reduction of their unit."""

from collections.abc import Iterable
from dataclasses import replace

from playbook.program.block import Block, Tensor
from playbook.program.op import FIRST, At
from playbook.program.policy import Context
from playbook.program.state import added_up
from playbook.strategies.fsdp2.rows import ADD, COPY_IN, FREE, REDUCE


def late(ctx: Context) -> bool:
    """Whether gradients are reduced in the last of several micro-batches only."""
    return ctx.reduces_after or added_up(ctx)


def unit_gradients(block: Block, ctx: Context) -> Iterable[Tensor]:
    """Whole gradients of a block's own weights, until the reduction has copied them in.

    Where they are reduced late they add up: in the gradients of the first micro-batch, or in copies of the
    dtype of reduction if that is another. The unit's last stays in a variable of `foreach_reduce` until that
    is done.
    """
    recipe = ctx.recipe
    copied = At("G" if ctx.reduces_after else "B", COPY_IN, 0 if block.layered else FIRST)
    cast = recipe.reduce_bytes != recipe.compute_bytes
    last = (block.weights if block.layered else ctx.root)[-1:]
    for weight in block.weights:
        size = recipe.compute_bytes * weight.numel
        end = copied._replace(row=REDUCE) if (weight,) == last and ctx.shard > 1 else copied
        new = Tensor(
            name=f"{weight.name} gradient", term="gradients", bytes=size, birth=weight.born or weight.ready
        )
        if not late(ctx):
            yield replace(new, bwd_end=end)
        elif cast:
            added = Tensor(
                name=f"{weight.name} sum",
                term="gradients",
                bytes=recipe.reduce_bytes * weight.numel,
                birth=copied._replace(segment="W", row=FREE),
            )
            yield replace(new, bwd_end=copied._replace(segment="B", row=ADD))
            yield replace(added, bwd_end=end, when="step")
        else:
            yield replace(new, bwd_end=end, when="step")
            yield replace(
                new, name=f"{weight.name} new gradient", bwd_end=weight.taken or weight.ready, when="later"
            )
