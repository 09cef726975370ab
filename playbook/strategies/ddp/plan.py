"""Data parallelism as a pass: state stays whole, gradients are all-reduced over dp while backward runs.

Communicates over dp: one all-reduce of each gradient a step or micro-batch, 2 (N − 1)/N of its bytes on the
wire. Context-parallel ranks are among the N, since each saw other tokens with the same weights.
"""

from dataclasses import replace

from playbook.program.block import Block, Tensor, Weight, total
from playbook.program.groups import Group, groups
from playbook.program.op import END, At, Op, Size, When, insert, rows
from playbook.program.passes import Blocks, Plan, each, enter
from playbook.program.policy import Context
from playbook.program.state import partial_sums, state, unit
from playbook.program.tensor_bytes import trainable
from playbook.spec import Layout
from playbook.strategies.ddp.distributed import (
    arrival,
    distributed,
    send_last,
    taken,
    waits,
    whole_table,
)


def replicate(blocks: Blocks, ctx: Context) -> Blocks:
    """Give every block its whole state and the all-reduce of its gradients."""
    rewritten = each(blocks, lambda block: replicate_block(block, ctx, shared_optimizer=False))
    return reduce_gradients(rewritten, ctx)


def replicate_block(block: Block, ctx: Context, *, shared_optimizer: bool) -> Block:
    """Add a block's state, with the optimizer's part whole or shared out."""
    refuse_two_dtypes(ctx)
    block = enter(block, "data")
    held = state(block, ctx, parameters=False, gradients=False, optimizer=shared_optimizer)
    table = block.weights[0] if block.weights else None
    tensors = whole_table(block.tensors, table, ctx)
    block = replace(block, tensors=(*tensors, *held, *whole_gradients(block, ctx)))
    if ctx.policy.dtensor and ctx.shard > 1:
        return sum_in_backward(block, ctx)
    sums = partial_sums(block.weights, "O", ctx.recipe.gradient_bytes)
    return replace(block, optimizer=rows((*block.optimizer, *sums)))


def sum_in_backward(block: Block, ctx: Context) -> Block:
    """Sum partial gradients as soon as they are there.

    DDP takes the local tensors of distributed parameters, and DTensor makes a gradient whole before it hands
    it to one (torch 2.13, `tensor/parallel/ddp.py`).
    """
    for weight in block.weights:
        for op in partial_sums((weight,), "B", ctx.recipe.gradient_bytes):
            number = sum(row.name.startswith(f"/{op.label}#") for row in block.backward)
            named = replace(op, absolute=True, name=f"/{op.label}#{number}")
            block = replace(block, backward=insert(block.backward, named, after=weight.ready.row))
    return block


def refuse_two_dtypes(ctx: Context) -> None:
    """Refuse a recipe that computes in another dtype than it stores, where memory is counted as the
    framework does."""
    recipe = ctx.recipe
    if ctx.policy.buffers and recipe.compute_bytes != recipe.parameter_bytes:
        raise ValueError(
            f"recipe={recipe.name!r} stores {recipe.parameter_bytes} and computes in {recipe.compute_bytes} "
            "bytes, which is FSDP2's mixed precision; use zero=3, or recipe='fp32' or 'bf16' with zero=0"
        )


def whole_gradients(block: Block, ctx: Context) -> tuple[Tensor, ...]:
    """Gradients that appear in the first backward and go after the optimizer; later ones are added to
    them."""
    if ctx.policy.gradients_resident:
        return ()
    tensors = []
    for weight in block.weights:
        size = ctx.recipe.gradient_bytes * weight.numel
        born = weight.born or weight.ready
        common = {"term": "gradients", "bytes": size, "birth": born}
        tensors.append(Tensor(name=f"{weight.name} gradient", when="step", bwd_end=At("O", END), **common))
        tensors.append(
            Tensor(
                name=f"{weight.name} new gradient",
                when="later",
                bwd_end=taken(weight, ctx),
                **common,
            )
        )
    return tuple(tensors)


def reduce_gradients(blocks: Blocks, ctx: Context) -> Blocks:
    """Insert the all-reduces: one a unit at its end, or one a bucket when its last gradient is there."""
    if ctx.policy.bucket_bytes is None:
        return each(blocks, lambda block: reduce_unit(block, ctx))
    return reduce_buckets(blocks, ctx, ctx.policy.bucket_bytes)


def reduce_unit(block: Block, ctx: Context) -> Block:
    """All-reduce the gradients of a unit at the end of its backward, those of experts among their peers."""
    ops = [
        all_reduce(group, ctx.recipe.reduce_bytes * total(group.weights), ctx)
        for group in groups(trainable(unit(block, ctx)), ctx)
        if group.ranks > 1
    ]
    return replace(block, backward=rows((*block.backward, *ops))) if ops else block


def all_reduce(group: Group, payload: Size, ctx: Context) -> Op:
    """One all-reduce of gradients over dp."""
    when: When = "last" if ctx.gradient_sync == "last" else "every"
    return group.collective("all_reduce", "B", payload, stream="reduce", when=when, for_weights=True)


def reduce_buckets(blocks: Blocks, ctx: Context, limits: tuple[int, int]) -> Blocks:
    """All-reduce gradients in buckets, filled in the order in which backward makes them.

    A bucket closes once it holds its limit, which is smaller for the first one so that communication starts
    early. Buckets are memory of their own beside the gradients. Gradients with other peers have other
    buckets.
    """
    order = arrival(blocks, ready_order(blocks)) if waits(ctx) else ready_order(blocks)
    result, number = blocks, 0
    for group in groups(tuple(weight for _, weight in order), ctx):
        if group.ranks > 1:
            mine = [(index, weight) for index, weight in order if weight.expert or not group.expert]
            if ctx.experts_apart and not group.expert:
                mine = [(index, weight) for index, weight in mine if not weight.expert]
            result, number = fill_buckets(result, mine, group, limits, number, ctx)
    return each(result, lambda block: with_buckets(block, ctx))


def fill_buckets(
    blocks: Blocks,
    order: list[tuple[int, Weight]],
    group: Group,
    limits: tuple[int, int],
    number: int,
    ctx: Context,
) -> tuple[Blocks, int]:
    """Insert the all-reduce of each bucket of a group behind its last gradient; `number` is the first's."""
    result, filled, limit = list(blocks), 0, limits[0]
    for place, (index, weight) in enumerate(order, start=1):
        filled += ctx.recipe.reduce_bytes * int_or_zero(weight.numel)
        if filled >= limit or place == len(order):
            op = replace(all_reduce(group, filled, ctx), owner=f"bucket{number}", absolute=True)
            op = replace(op, name=f"{op.owner}/all_reduce@dp#0")
            if waits(ctx) and distributed(weight):
                result[0] = send_last(result[0], op)
            else:
                host, row = result[index], (weight.taken or weight.ready).row
                result[index] = replace(host, backward=insert(host.backward, op, after=row))
            filled, limit, number = 0, limits[1], number + 1
    return tuple(result), number


def ready_order(blocks: Blocks) -> list[tuple[int, Weight]]:
    """Weights with their block's index in the order in which backward completes their gradients."""
    order = []
    for index in reversed(range(len(blocks))):
        names = [op.name for op in blocks[index].backward]
        place = {weight.name: position(names, weight.ready) for weight in blocks[index].weights}
        order += [(index, weight) for weight in sorted(blocks[index].weights, key=lambda w: place[w.name])]
    return order


def position(names: list[str], ready: At) -> int:
    """Index of the row that completes a gradient."""
    return len(names) if ready.row == END else names.index(ready.row)


def with_buckets(block: Block, ctx: Context) -> Block:
    """Add the memory of the buckets that hold a block's gradients."""
    sent = [total(group.weights) for group in groups(block.weights, ctx) if group.ranks > 1]
    if not ctx.policy.buffers or not sent:
        return block
    size = ctx.recipe.reduce_bytes * sum(sent, 0)
    bucket = Tensor(name="buckets", term="communication_buffers", bytes=size, birth=At("S"))
    return replace(block, tensors=(*block.tensors, bucket))


def int_or_zero(size: Size) -> int:
    """Return a number; buckets of symbolic sizes are never full."""
    return size if isinstance(size, int) else 0


def layout(ranks: int, **levers: object) -> Layout:
    """All ranks are replicas."""
    return Layout(dp=ranks, **levers)  # type: ignore[arg-type]


PLAN = Plan(
    name="ddp",
    axis="dp",
    step="data",
    summary="Every rank holds the whole model and part of the batch; gradients are all-reduced in backward.",
    levers={},
    run_levers={"bucket_bytes": "size at which a bucket of gradients closes, in bytes"},
    applies=lambda layout: layout.zero == 0,
    rewrite=replicate,
    layout=layout,
)
