"""FSDP2 (ZeRO stage 3) as a pass: a layer's parameters are gathered before use, freed, and gathered again in
backward.

Communicates over dp: per unit an all-gather in forward, one in backward unless the parameters are kept, and a
reduce-scatter of the gradients. The ends of a stage (embedding, last norm, head) are one unit, the root.
Experts that other ranks share than the dense weights of their layer are gathered and reduced apart, beside
them.

What lives how long is PyTorch's `fully_shard` (torch 2.11 to 2.13): the gathered flat buffer stays until the
next one is copied out in forward, backward gathers one unit ahead, a reduction's input stays until the next
unit's gradients are complete. In a stage that torch.distributed.pipelining runs, what a backward has gathered
stays until the next forward frees it, and all units are reduced one behind the other after the last backward.
"""

from collections.abc import Iterable
from dataclasses import replace

from playbook.program.block import Block, Tensor, Weight
from playbook.program.op import END, FIRST, LAST, START, At, Op, Size, When, rows
from playbook.program.passes import Blocks, Plan, each, enter
from playbook.program.policy import Context
from playbook.program.state import flat_numel, partial_sums, shard_numel, state, unit
from playbook.program.tensor_bytes import trainable
from playbook.spec import Layout, Scenario
from playbook.strategies.fsdp2.after import reduced_after
from playbook.strategies.fsdp2.alone import alone
from playbook.strategies.fsdp2.gradients import late, unit_gradients
from playbook.strategies.fsdp2.rows import (
    ADD,
    COPY_IN,
    COPY_OUT,
    FREE,
    GATHER,
    REDUCE,
    copied_out,
    gathering,
    gathers,
    kept,
    mark,
    reductions,
)


def shard(blocks: Blocks, ctx: Context) -> Blocks:
    """Share out all state of every block and insert its gathers and reductions."""
    return each(blocks, lambda block: shard_block(block, ctx))


def shard_block(block: Block, ctx: Context) -> Block:
    """Share out one block's state; rows of the root go to the ends of the stage."""
    block = enter(block, "data")
    held = state(block, ctx, parameters=True, gradients=True, optimizer=True)
    block = replace(block, tensors=(*block.tensors, *held))
    block = with_gradients(with_backward(with_forward(block, ctx), ctx), ctx)
    single = ctx.policy.buffers and ctx.shard == 1 and not any(weight.expert for weight in block.weights)
    return alone(block) if single else block


def with_forward(block: Block, ctx: Context) -> Block:
    """Gather a unit at the start of its forward; free it at the end if parameters are resharded."""
    weights = unit(block, ctx)
    root_ends = bool(ctx.root) and not block.layered and not block.first
    opening: tuple[Op, ...] = ()
    if weights:
        when = gathering(ctx)
        opening = (*gathers(weights, ctx, "F", when), mark("F", COPY_OUT, when))
    closing = (mark("F", FREE),) if block.layered or root_ends else ()
    tensors = forward_tensors(block, ctx) if weights and ctx.policy.buffers else ()
    module, loss = cut(block, "F")
    forward = rows((*opening, *module, *closing, *loss))
    return replace(block, forward=forward, tensors=(*block.tensors, *tensors))


def cut(block: Block, segment: str) -> tuple[tuple[Op, ...], tuple[Op, ...]]:
    """Cut a segment where the loss begins in forward, or ends in backward, if it stands outside the model."""
    ops = block.segment(segment)
    names = [op.name for op in ops]
    if block.loss is None:
        place = len(ops) if segment == "F" else 0
    else:
        place = names.index(block.loss[0]) if segment == "F" else names.index(block.loss[1]) + 1
    return ops[:place], ops[place:]


def forward_tensors(block: Block, ctx: Context) -> Iterable[Tensor]:
    """The flat buffer and the gathered parameters of forward."""
    size = ctx.recipe.compute_bytes * flat_numel(unit(block, ctx), ctx)
    when = gathering(ctx)
    flat = Tensor(name="flat", term="communication_buffers", bytes=size, birth=At("F", GATHER), when=when)
    # `wait_for_unshard` holds the one before in a variable while it copies the next one out (torch 2.13).
    yield replace(flat, fwd_end=At("F", COPY_OUT, 1, otherwise=FREE if ctx.root else END))
    yield from cast_shard(unit(block, ctx), ctx, At("F", GATHER), when)
    gathered = Tensor(name="gathered", term="unsharded", bytes=size, birth=At("F", COPY_OUT))
    if ctx.reshard:
        yield replace(gathered, fwd_end=At("F", FREE, 0 if block.layered else LAST), when=when)
    else:
        freed = At("G" if ctx.reduces_after else "B", FREE)
        yield replace(gathered, bwd_end=freed, when="step" if kept(ctx) else "every")


def cast_shard(weights: tuple[Weight, ...], ctx: Context, gather: At, when: When) -> Iterable[Tensor]:
    """The rank's own shard in the dtype of computation, where that is another than the parameters'."""
    recipe = ctx.recipe
    if recipe.compute_bytes != recipe.parameter_bytes:
        size = recipe.compute_bytes * shard_numel(weights, ctx)
        cast = Tensor(name="cast shard", term="communication_buffers", bytes=size, birth=gather, when=when)
        yield replace(cast, fwd_end=gather) if gather.segment == "F" else replace(cast, bwd_end=gather)


def with_backward(block: Block, ctx: Context) -> Block:
    """Gather a unit for backward, one unit ahead; free it when its gradients are complete."""
    weights = block.weights if block.layered else ctx.root
    if not weights or not ctx.reshard:
        return block
    size, when = ctx.recipe.compute_bytes * flat_numel(weights, ctx), gathering(ctx)
    if block.layered:
        ahead = At("B", COPY_OUT, 1, otherwise=START)
        opening = (*gathers(weights, ctx, "B", when, issue=ahead), mark("B", COPY_OUT, when))
    elif block.first:
        return block
    else:
        opening = (*gathers(weights, ctx, "B", when), mark("B", COPY_OUT, when))
    loss, module = cut(block, "B")
    backward = rows((*loss, *opening, *module))
    if not ctx.policy.buffers:
        return replace(block, backward=backward)
    flat = Tensor(
        name="flat again", term="communication_buffers", bytes=size, birth=At("B", GATHER), when=when
    )
    gathered = Tensor(name="gathered again", term="unsharded", bytes=size, birth=At("B", COPY_OUT), when=when)
    freed = At("G" if ctx.reduces_after else "B", FREE, 0 if block.layered else FIRST)
    if ctx.reduces_after:
        gathered = replace(gathered, fwd_end=At("F", FREE, 0 if block.layered else LAST))
    tensors = (
        *cast_shard(weights, ctx, At("B", GATHER), when),
        replace(flat, bwd_end=copied_out(block)),
        replace(gathered, bwd_end=freed),
    )
    return replace(block, backward=backward, tensors=(*block.tensors, *tensors))


def with_gradients(block: Block, ctx: Context) -> Block:
    """Reduce a unit's gradients at the end of its backward; they need its gathered parameters no more."""
    weights = unit(block, ctx)
    tensors = unit_gradients(block, ctx) if ctx.policy.buffers else ()
    if not weights:
        return replace(block, tensors=(*block.tensors, *tensors))
    if ctx.reduces_after:
        return reduced_after(replace(block, tensors=(*block.tensors, *tensors)), weights, ctx)
    when: When = "last" if late(ctx) else "every"
    size = ctx.recipe.reduce_bytes * flat_numel(weights, ctx)
    adding = (replace(mark("B", ADD), for_weights=True),) if late(ctx) else ()
    summed = ctx.recipe.reduce_bytes if late(ctx) else ctx.recipe.compute_bytes
    sums = (replace(op, when=when) for op in partial_sums(weights, "B", summed))
    closing = (
        *adding,
        mark("B", FREE),
        *sums,
        replace(mark("B", COPY_IN, when), for_weights=True),
        *reductions(trainable(weights), ctx, when),
    )
    if ctx.policy.buffers:
        tensors = (*tensors, *reduction_tensors(block, ctx, size, when))
    return replace(block, backward=rows((*block.backward, *closing)), tensors=(*block.tensors, *tensors))


def reduction_tensors(block: Block, ctx: Context, size: Size, when: When) -> Iterable[Tensor]:
    """The reduction's input, kept until the next unit's end, and its output, which becomes the gradient."""
    until = At("W", FREE, -1, otherwise=END) if block.layered else At("W", END)
    yield Tensor(
        name="reduction input",
        term="communication_buffers",
        bytes=size,
        birth=At("B", COPY_IN),
        bwd_end=until,
        when=when,
    )
    if ctx.policy.gradients_resident:
        return
    shard_bytes = ctx.recipe.gradient_bytes * shard_numel(unit(block, ctx), ctx)
    out = Tensor(name="gradient shard", term="gradients", bytes=shard_bytes, birth=At("B", REDUCE))
    yield replace(out, bwd_end=At("O", END), when="last" if when == "last" else "step")
    if when == "every":
        yield replace(out, name="new gradient shard", bwd_end=At("B", REDUCE), when="later")


def refuse_run(scenario: Scenario, by_hand: bool) -> None:
    """Refuse what the code by hand does not do."""
    workload, several = scenario.workload, scenario.microbatches > 1
    if by_hand and workload.recompute == "full":
        raise ValueError(
            "recompute='full' needs whole weights twice in backward; use by='library', or "
            "recompute='selective', which runs only the attention core again"
        )
    if by_hand and workload.gradient_sync == "last" and several:
        raise ValueError("gradient_sync='last' keeps whole gradients between micro-batches; use by='library'")


def layout(ranks: int, **levers: object) -> Layout:
    """All ranks share all state."""
    return Layout(dp=ranks, zero=3, **levers)  # type: ignore[arg-type]


PLAN = Plan(
    name="fsdp2",
    axis="dp",
    step="data",
    summary="Each rank keeps 1/N of all state; a layer is gathered while it is used.",
    levers={"reshard": "free gathered parameters after forward, or keep them until backward"},
    applies=lambda layout: layout.zero == 3 and layout.dp_replicate == 1,
    rewrite=shard,
    layout=layout,
    refuse_run=refuse_run,
)
