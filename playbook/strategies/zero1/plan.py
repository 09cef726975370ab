"""ZeRO stage 1 as a pass: the optimizer's state is shared out, parameters and gradients stay whole.

Communicates over dp: gradients are reduced in backward, updated parameters come back after the step. The
paper reduces each rank its part and gathers, 2 (N − 1)/N of the bytes in all; PyTorch all-reduces everything
and broadcasts. Among R replicas (dp_replicate) state is shared inside each, and the reduced shards are summed
between them.
"""

from dataclasses import replace

from playbook.program.block import Block, total
from playbook.program.groups import Group, groups
from playbook.program.op import Op, When, rows
from playbook.program.passes import Blocks, Plan, each
from playbook.program.policy import Context
from playbook.program.state import held_of, unit
from playbook.program.tensor_bytes import trainable
from playbook.spec import Layout
from playbook.strategies.ddp.plan import reduce_gradients, replicate_block
from playbook.strategies.zero1.whole_shares import hand_out


def share_optimizer(blocks: Blocks, ctx: Context) -> Blocks:
    """Share the optimizer's state, reduce gradients, and return parameters after the step."""
    blocks = each(blocks, lambda block: replicate_block(block, ctx, shared_optimizer=True))
    if ctx.policy.broadcasts:
        blocks = reduce_gradients(blocks, ctx)
    else:
        blocks = each(blocks, lambda block: scatter_gradients(block, ctx))
    blocks = each(blocks, lambda block: return_parameters(block, ctx))
    return hand_out(blocks, ctx) if ctx.policy.broadcasts else blocks


def scatter_gradients(block: Block, ctx: Context) -> Block:
    """Reduce-scatter a unit's gradients at the end of its backward, and sum the shards of its replicas."""
    ops: list[Op] = []
    when: When = "last" if ctx.gradient_sync == "last" else "every"
    for group in groups(trainable(unit(block, ctx)), ctx):
        size = ctx.recipe.reduce_bytes * total(group.weights)
        if group.ranks > 1:
            reduce = group.collective("reduce_scatter", "B", size, stream="reduce", when=when)
            ops.append(replace(reduce, for_weights=True))
        if ctx.dp_replicate > 1:
            ops.append(sum_replicas(group, ctx, when))
    return replace(block, backward=rows((*block.backward, *ops))) if ops else block


def sum_replicas(group: Group, ctx: Context, when: When) -> Op:
    """All-reduce a group's reduced shard with those of the other replicas."""
    held = held_of(group, ctx, own=False)
    op = group.collective("all_reduce", "B", ctx.recipe.reduce_bytes * held, stream="reduce", when=when)
    return replace(op, axis="dp_replicate", ranks=0, for_weights=True)


def return_parameters(block: Block, ctx: Context) -> Block:
    """Bring a unit's updated parameters to every rank after the optimizer step."""
    name = "broadcast" if ctx.policy.broadcasts else "all_gather"
    ops = [
        group.collective(name, "O", ctx.recipe.parameter_bytes * total(group.weights), stream="gather")
        for group in groups(trainable(unit(block, ctx)), ctx)
        if group.ranks > 1
    ]
    return replace(block, optimizer=rows((*block.optimizer, *ops))) if ops else block


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
