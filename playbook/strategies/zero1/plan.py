"""ZeRO stage 1 as a pass: the optimizer's state is shared out, parameters and gradients stay whole.

Communicates over dp: gradients are reduced in backward, updated parameters come back after the step. The
paper reduces each rank its part and gathers, 2 (N − 1)/N of the bytes in all; PyTorch all-reduces everything
and broadcasts.
"""

from dataclasses import replace

from playbook.program.block import Block, total
from playbook.program.op import Op, rows
from playbook.program.passes import Blocks, Plan, each
from playbook.program.policy import Context
from playbook.program.state import unit
from playbook.spec import Layout
from playbook.strategies.ddp.plan import reduce_gradients, replicate_block


def share_optimizer(blocks: Blocks, ctx: Context) -> Blocks:
    """Share the optimizer's state, reduce gradients, and return parameters after the step."""
    blocks = each(blocks, lambda block: replicate_block(block, ctx, shared_optimizer=True))
    if ctx.policy.broadcasts:
        blocks = reduce_gradients(blocks, ctx)
    else:
        blocks = each(blocks, lambda block: scatter_gradients(block, ctx))
    return each(blocks, lambda block: return_parameters(block, ctx))


def scatter_gradients(block: Block, ctx: Context) -> Block:
    """Reduce-scatter a unit's gradients at the end of its backward."""
    weights = unit(block, ctx)
    if ctx.dp == 1 or not weights:
        return block
    op = Op(
        owner="",
        op="reduce_scatter",
        phase="B",
        axis="dp",
        payload=ctx.recipe.reduce_bytes * total(weights),
        stream="reduce",
        when="last" if ctx.gradient_sync == "last" else "every",
        for_weights=True,
    )
    return replace(block, backward=rows((*block.backward, op)))


def return_parameters(block: Block, ctx: Context) -> Block:
    """Bring a unit's updated parameters to every rank after the optimizer step."""
    weights = unit(block, ctx)
    if ctx.dp == 1 or not weights:
        return block
    op = Op(
        owner="",
        op="broadcast" if ctx.policy.broadcasts else "all_gather",
        phase="O",
        axis="dp",
        payload=ctx.recipe.parameter_bytes * total(weights),
        stream="gather",
    )
    return replace(block, optimizer=rows((*block.optimizer, op)))


def layout(ranks: int, **levers: object) -> Layout:
    """All ranks are replicas that share the optimizer."""
    return Layout(dp=ranks, zero=1, **levers)  # type: ignore[arg-type]


PLAN = Plan(
    name="zero1",
    axis="dp",
    step="data",
    summary="Each rank keeps 1/N of the optimizer's state; parameters and gradients stay whole everywhere.",
    levers={},
    applies=lambda layout: layout.zero == 1,
    rewrite=share_optimizer,
    layout=layout,
)
