"""Tensor parallelism as a pass: products of a layer are split by columns, then by rows, and partial sums
added.

Communicates over tp: per layer and micro-batch two all-reduces in forward and two in backward, each of the
whole residual stream. With sequence parallelism each becomes a reduce-scatter and an all-gather, and what
lies between the products (norms, residual stream) is split along the sequence. Shoeybi et al., Megatron-LM,
2019; Korthikanti et al., 2022.
"""

from dataclasses import replace

from playbook.program.block import Block, Junction, Op, Size, Tensor, Weight, insert
from playbook.program.passes import Blocks, Plan, each, enter
from playbook.program.policy import Context
from playbook.program.recompute import AGAIN
from playbook.spec import Layout

KEY_VALUE = ("k_proj", "v_proj")


def split(blocks: Blocks, ctx: Context) -> Blocks:
    """Split every block among the tensor-parallel ranks."""
    if ctx.tp == 1:
        return blocks
    return each(blocks, lambda block: split_block(block, ctx))


def split_block(block: Block, ctx: Context) -> Block:
    """Scale one block's tensors, FLOPs and weights, and insert the collectives of its parts."""
    block = enter(block, "tensor")
    splits = block.layered or ctx.policy.vocabulary_parallel
    block = replace(
        block,
        tensors=tuple(split_tensor(tensor, ctx, splits) for tensor in block.tensors),
        forward=tuple(split_op(op, ctx, splits) for op in block.forward),
        backward=tuple(split_op(op, ctx, splits) for op in block.backward),
        weights=tuple(split_weight(weight, ctx, splits) for weight in block.weights),
    )
    for junction in block.junctions if splits else ():
        block = join(block, junction, ctx)
    return block


def parts(region: str, ctx: Context, splits: bool) -> int:
    """Among how many ranks a region is divided."""
    if region == "tp":
        return ctx.tp if splits else 1
    if region == "kv":
        return min(ctx.tp, ctx.kv_heads)
    if region == "gathered":
        return ctx.tp if ctx.sequence_parallel and not (splits and ctx.policy.saves_gathered) else 1
    return ctx.tp if region == "full" and ctx.sequence_parallel else 1


def share(size: Size, region: str, ctx: Context, splits: bool) -> Size:
    """One rank's share of a size."""
    count = parts(region, ctx, splits)
    return ctx.divide(size, count, "g" if region == "kv" and ctx.tp > ctx.kv_heads else "t")


def split_tensor(tensor: Tensor, ctx: Context, splits: bool) -> Tensor:
    """One rank's share of a tensor."""
    return replace(tensor, bytes=share(tensor.bytes, tensor.region, ctx, splits))


def split_op(op: Op, ctx: Context, splits: bool) -> Op:
    """One rank's share of a row's FLOPs and payload."""
    flops, payload = (share(size, op.region, ctx, splits) for size in (op.flops, op.payload))
    return replace(op, flops=flops, payload=payload)


def split_weight(weight: Weight, ctx: Context, splits: bool) -> Weight:
    """One rank's share of a parameter; a key-value head is copied where there are more ranks than heads."""
    if weight.tp_dim is None or not splits:
        return weight
    copied = any(name in weight.name for name in KEY_VALUE)
    shape = list(weight.shape)
    shape[weight.tp_dim] = share(shape[weight.tp_dim], "kv" if copied else "tp", ctx, splits)
    return replace(weight, shape=tuple(shape))


def join(block: Block, junction: Junction, ctx: Context) -> Block:
    """Insert the collectives at the input and output of one tensor-parallel part."""
    gather, reduce = ("all_gather", "reduce_scatter") if ctx.sequence_parallel else (None, "all_reduce")
    if junction.input_rows and junction.enter is not None:
        first, last = junction.input_rows
        block = put(block, "F", junction.enter, gather, junction, before=first)
        if junction.again and not ctx.policy.saves_gathered:
            block = put(block, "B", junction.enter, gather, junction, before=junction.again)
        block = put(block, "B", junction.enter, reduce, junction, after=last)
    if junction.output_rows and junction.leave is not None:
        last, first_back = junction.output_rows
        block = put(block, "F", junction.leave, reduce, junction, after=last)
        if first_back is not None:
            block = put(block, "B", junction.leave, gather, junction, before=first_back)
    return block


def put(
    block: Block,
    segment: str,
    owner: str,
    name: str | None,
    junction: Junction,
    before: str | None = None,
    after: str | None = None,
) -> Block:
    """Insert one collective; into the second forward too, where recompute has copied its neighbour."""
    if name is None:
        return block
    op = Op(owner=owner, op=name, phase=segment, axis="tp", payload=junction.bytes, stream="compute")
    ops = block.forward if segment == "F" else block.backward
    op = replace(op, name=free_name(ops, op))
    ops = insert(ops, op, before=before, after=after)
    if segment == "B":
        return replace(block, backward=ops)
    block = replace(block, forward=ops)
    anchor = AGAIN + (before or after or "")
    names = [row.name for row in block.backward]
    if anchor not in names or (after is not None and anchor == last_again(names)):
        return block
    again = replace(op, phase="R", name=AGAIN + op.name)
    backward = insert(block.backward, again, before=before and anchor, after=after and anchor)
    return replace(block, backward=backward)


def last_again(names: list[str]) -> str:
    """Last row that backward computes again."""
    return [name for name in names if name.startswith(AGAIN)][-1]


def free_name(ops: tuple[Op, ...], op: Op) -> str:
    """The next name of an owner's collective among rows that are named already."""
    stem = f"{op.owner}/{op.label}#"
    return f"{stem}{sum(row.name.startswith(stem) for row in ops)}"


def layout(ranks: int, **levers: object) -> Layout:
    """All ranks share each layer."""
    return Layout(tp=ranks, **levers)  # type: ignore[arg-type]


PLAN = Plan(
    name="tp",
    axis="tp",
    step="tensor",
    summary="Each rank holds 1/t of the columns, then of the rows, of every product; partial sums are added.",
    levers={"sequence_parallel": "split the norms' activations along the sequence"},
    applies=lambda layout: layout.tp > 1,
    rewrite=split,
    layout=layout,
)
