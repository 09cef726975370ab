"""Tensor parallelism as a pass: products of a layer are split by columns, then by rows, and partial sums
added.

Communicates over tp: per layer and micro-batch two all-reduces in forward and two in backward, each of the
whole residual stream. With sequence parallelism each becomes a reduce-scatter and an all-gather, and what
lies between the products (norms, residual stream) is split along the sequence. Shoeybi et al., Megatron-LM,
2019; Korthikanti et al., 2022.
"""

from dataclasses import replace

from playbook.program.block import Block, Junction, Tensor, Weight
from playbook.program.op import Op, Size, insert
from playbook.program.passes import Blocks, Plan, each, enter
from playbook.program.policy import Context
from playbook.program.recompute import AGAIN
from playbook.spec import Layout, Scenario
from playbook.strategies.tp.dtensor import with_dtensor

KEY_VALUE = ("k_proj", "v_proj")


def split(blocks: Blocks, ctx: Context) -> Blocks:
    """Split every block among the tensor-parallel ranks."""
    if ctx.tp == 1:
        return blocks
    return each(blocks, lambda block: split_block(block, ctx))


def split_block(block: Block, ctx: Context) -> Block:
    """Scale one block's tensors, FLOPs and weights, and insert the collectives of its parts."""
    block = enter(block, "tensor")
    splits, whole = block.layered or ctx.policy.vocabulary_parallel, block.weights
    block = replace(
        block,
        tensors=tuple(split_tensor(tensor, ctx, splits) for tensor in block.tensors),
        forward=tuple(split_op(op, ctx, splits) for op in block.forward),
        backward=tuple(split_op(op, ctx, splits) for op in block.backward),
        weights=tuple(split_weight(weight, ctx, splits) for weight in block.weights),
    )
    for junction in block.junctions if splits else ():
        block = join(block, junction, ctx)
    return with_dtensor(block, whole, ctx) if ctx.policy.dtensor else block


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
    """One rank's share of a parameter; a key-value head is copied where there are more ranks than heads.

    Experts are left to the expert pass: tensor parallelism in them has a degree of its own.
    """
    if weight.tp_dim is None or weight.expert or not splits:
        return weight
    copied = any(name in weight.name for name in KEY_VALUE)
    shape = list(weight.shape)
    shape[weight.tp_dim] = share(shape[weight.tp_dim], "kv" if copied else "tp", ctx, splits)
    return replace(weight, shape=tuple(shape))


def join(block: Block, junction: Junction, ctx: Context) -> Block:
    """Insert the collectives at the input and output of one tensor-parallel part."""
    gather, reduce = ("all_gather", "reduce_scatter") if ctx.sequence_parallel else (None, "all_reduce")
    insertions: list[tuple[str, str, str | None, str, bool]] = []
    again = junction.again if not ctx.policy.saves_gathered else None
    if junction.input_rows and junction.enter is not None:
        first, last = junction.input_rows
        insertions.append(("F", junction.enter, gather, first, True))
        if again:
            insertions.append(("B", junction.enter, gather, again, True))
        insertions.append(("B", junction.enter, reduce, last, False))
    if junction.output_rows and junction.leave is not None:
        last, first_back = junction.output_rows
        insertions.append(("F", junction.leave, "all_gather" if junction.gathers else reduce, last, False))
        if first_back is not None:
            insertions.append(("B", junction.leave, gather, first_back, True))
    for segment, owner, name, anchor, before in insertions:
        if name is not None:
            late = segment == "B" and anchor == again
            op = Op(owner=owner, op=name, phase=segment, axis="tp", payload=junction.bytes, for_weights=late)
            block = put(block, op, anchor, before, ctx.policy.stops_early)
    return block


def put(block: Block, op: Op, anchor: str, before: bool, stops_early: bool) -> Block:
    """Insert one collective before or behind a row; in the second forward too, where recompute has copied
    that."""
    if op.phase == "B":
        return replace(block, backward=beside(block.backward, op, anchor, before))
    block = replace(block, forward=beside(block.forward, op, anchor, before))
    copies = [row.name for row in block.backward if row.name.startswith(AGAIN)]
    behind_the_end = stops_early and not before and copies[-1:] == [AGAIN + anchor]
    if AGAIN + anchor not in copies or behind_the_end:
        return block
    again = replace(op, phase="R")
    return replace(block, backward=beside(block.backward, again, AGAIN + anchor, before))


def beside(ops: tuple[Op, ...], op: Op, anchor: str, before: bool) -> tuple[Op, ...]:
    """Put a row before or behind a named one, under the next free name of its owner and operation."""
    stem = f"{AGAIN if op.phase == 'R' else ''}{op.owner}/{op.label}#"
    named = replace(op, name=f"{stem}{sum(row.name.startswith(stem) for row in ops)}")
    return insert(ops, named, before=anchor) if before else insert(ops, named, after=anchor)


def refuse_run(scenario: Scenario, by_hand: bool) -> None:
    """Refuse models that the code on ranks does not split."""
    model, tp = scenario.model, scenario.layout.tp
    if by_hand and (model.output_bias or model.mlp_bias):
        raise ValueError(
            f"model {model.name} has biases after row-split products, which by hand would count once a rank; "
            "use by='library'"
        )
    if not by_hand and tp > model.kv_heads:
        raise ValueError(
            f"tp={tp} is more than kv_heads={model.kv_heads}: DTensor would cut a head in two; "
            f"use by='hand', which copies heads, or tp={model.kv_heads}"
        )


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
    refuse_run=refuse_run,
)
