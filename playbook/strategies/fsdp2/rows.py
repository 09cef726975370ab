"""Rows that FSDP2 puts into a block: gathers, reductions, and marks where memory moves or goes."""

from dataclasses import replace

from playbook.program.block import Block, Weight
from playbook.program.groups import EXPERTS, groups
from playbook.program.op import START, At, Op, When
from playbook.program.policy import Context
from playbook.program.state import flat_of
from playbook.strategies.zero1.plan import sum_replicas

GATHER = "/all_gather@dp#0"
COPY_OUT = "/split_with_sizes_copy#0"
FREE = "/resize_#0"
ADD = "/add_#0"
COPY_IN = "/chunk_cat#0"
REDUCE = "/reduce_scatter@dp#0"


def gathers(
    weights: tuple[Weight, ...], ctx: Context, phase: str, when: When = "every", issue: At | None = None
) -> tuple[Op, ...]:
    """The all-gather of a unit; experts that other ranks share have one of their own."""
    width = ctx.recipe.compute_bytes
    return tuple(
        replace(
            group.collective("all_gather", phase, width * flat_of(group, ctx), stream="gather"),
            when=when,
            issue=issue,
            name=f"{EXPERTS}{GATHER}" if group.expert else GATHER,
        )
        for group in groups(weights, ctx)
    )


def reductions(weights: tuple[Weight, ...], ctx: Context, when: When) -> tuple[Op, ...]:
    """The reduce-scatter of a unit's gradients, and the sum of its shards with those of other replicas."""
    width, ops = ctx.recipe.reduce_bytes, []
    for group in groups(weights, ctx):
        op = group.collective("reduce_scatter", "B", width * flat_of(group, ctx), stream="reduce", when=when)
        ops.append(replace(op, name=f"{EXPERTS}{REDUCE}" if group.expert else REDUCE, for_weights=True))
        if ctx.dp_replicate > 1:
            ops.append(sum_replicas(group, ctx, when))
    return tuple(ops)


def mark(phase: str, name: str, when: When = "every") -> Op:
    """A row that moves or frees memory and computes nothing; joins leave it out."""
    return Op(owner="", op=name[1:].partition("#")[0], phase=phase, name=name, when=when)


def kept(ctx: Context) -> bool:
    """Whether gathered parameters outlive the micro-batch: a pipeline runs the next forward before this
    backward."""
    return ctx.pipelined and not ctx.reshard


def gathering(ctx: Context) -> When:
    """In which runs parameters are gathered: those that do not find them whole."""
    return "first" if kept(ctx) else "sharded" if ctx.reduces_after else "every"


def copied_out(block: Block) -> At:
    """Where a flat buffer of backward has been copied out: with its unit, but at the end of a stage that
    sends on only behind the last layer, whose hook on the output comes before that of the root."""
    return At("B", COPY_OUT, -1, otherwise=START) if block.name == "send" else At("B", COPY_OUT)
