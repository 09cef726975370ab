"""Expert parallelism as a pass: routed experts are shared out whole, and tokens travel to them and back.

Communicates over ep, for each layer with experts and micro-batch: an all-to-all of the routed tokens before
the experts and one behind them, in forward and again in backward, each (n − 1)/n of the T·K tokens' features
on the wire. Tensor parallelism inside experts (etp) gathers those tokens among its ranks before the products
and reduce-scatters what comes out. Routing is taken as balanced, so a rank gets as many tokens as it sends;
with routing "capacity" and room for just as many the numbers are the same.

An expert's tensors have dim 0 of E experts: `ep` leaves a rank E/ep of them, `etp` divides their width. Its
gradients hold the tokens of all ranks already, so they are reduced only among the ranks with the same
experts. The ranks of tensor parallelism (t) have T/t of the tokens each here, whether or not the norms are
split along the sequence.

Where `ep` is a factor of the world (ep_rule "independent") no token travels: see `apart`.

Sources: Lepikhin et al., GShard, 2020; Megatron-LM's `MoEAlltoAllTokenDispatcher`; Ultra-Scale Playbook.
"""

from dataclasses import replace

from playbook.program.block import Block, Tensor, Weight
from playbook.program.op import At, Op, Segment, Size, rows
from playbook.program.passes import Blocks, Plan, each, enter
from playbook.program.policy import Context
from playbook.spec import Layout, Model, model
from playbook.spec.moe import Moe
from playbook.strategies.ep.apart import add_up, sums
from playbook.strategies.ep.tokens import (
    apart,
    behind,
    gathers_tokens,
    largest,
    last_routed,
    own_rows,
    routed_bytes,
    times,
)


def route(blocks: Blocks, ctx: Context) -> Blocks:
    """Share out the experts of every block that has some, and exchange the tokens."""
    return each(blocks, lambda block: route_block(block, ctx))


def route_block(block: Block, ctx: Context) -> Block:
    """Scale one block's experts, their rows and their tokens, and insert the exchanges."""
    if not any(weight.expert for weight in block.weights):
        return block
    block = enter(block, "expert")
    parts = sums(block, ctx) if apart(ctx) else None
    sent = own_rows(ctx.divide(largest(routed_bytes(block)), ctx.tp, "t"), ctx)
    block = replace(
        block,
        tensors=tuple(routed_tensor(tensor, ctx) for tensor in block.tensors),
        forward=tuple(routed_op(op, ctx) for op in block.forward),
        backward=tuple(routed_op(op, ctx) for op in block.backward),
        weights=tuple(own_experts(weight, ctx) for weight in block.weights),
    )
    block = exchange(block, sent, ctx)
    block = add_up(block, parts) if parts else block
    return restore_tokens(block, ctx) if ctx.tp > 1 and not ctx.sequence_parallel else block


def share(size: Size, region: str, ctx: Context) -> Size:
    """One rank's share of a size: T/t tokens' features, gathered among etp ranks, or 1/etp of the width."""
    if region not in ("routed", "expert"):
        return size
    mine = own_rows(ctx.divide(size, ctx.tp, "t"), ctx)
    return times(mine, ctx) if region == "routed" else mine


def routed_tensor(tensor: Tensor, ctx: Context) -> Tensor:
    """One rank's share of a tensor."""
    return replace(tensor, bytes=share(tensor.bytes, tensor.region, ctx))


def routed_op(op: Op, ctx: Context) -> Op:
    """One rank's share of a row."""
    flops, payload = (share(size, op.region, ctx) for size in (op.flops, op.payload))
    return replace(op, flops=flops, payload=payload)


def own_experts(weight: Weight, ctx: Context) -> Weight:
    """The experts of a rank, or its part of their width."""
    if not weight.expert:
        return weight
    shape = [ctx.divide(weight.shape[0], ctx.ep, "ep"), *weight.shape[1:]]
    if weight.tp_dim is not None:
        shape[weight.tp_dim] = ctx.divide(shape[weight.tp_dim], ctx.etp, "etp")
    return replace(weight, shape=tuple(shape))


def exchange(block: Block, sent: Size, ctx: Context) -> Block:
    """Insert the exchanges before the first row of the experts and behind the last, in either direction."""
    forward, names = travel(block.forward, "F", sent, ctx)
    backward, names_back = travel(block.backward, "B", sent, ctx)
    block = replace(block, forward=forward, backward=backward)
    if not ctx.policy.buffers:
        return block
    there = [staged(f"in {name}", "F", sent, name) for name in names]
    back = [staged(f"in {name} again", "B", sent, name) for name in names_back]
    return replace(block, tensors=(*block.tensors, *there, *back))


def travel(ops: tuple[Op, ...], phase: str, sent: Size, ctx: Context) -> tuple[tuple[Op, ...], list[str]]:
    """One segment with its exchanges, and the names of its all-to-alls."""
    places = [place for place, op in enumerate(ops) if op.region == "expert"]
    if not places:
        return ops, []
    out, into = [], []
    if ctx.ep > 1 and not apart(ctx):
        swap = Op(owner="mlp.experts", op="all_to_all", phase=phase, axis="ep", payload=sent, region="routed")
        out, into = [swap], [swap]
    if ctx.etp > 1 and gathers_tokens(ctx):
        whole = times(sent, ctx)
        gather = Op(
            owner="mlp.experts", op="all_gather", phase=phase, axis="tp", payload=whole, ranks=ctx.etp
        )
        out, into = [*out, gather], [replace(gather, op="reduce_scatter"), *into]
    first, last = places[0], places[-1] + 1
    made = rows((*ops[:first], *out, *ops[first:last], *into, *ops[last:]))
    return made, [op.name for op in made if op.axis == "ep"]


def staged(name: str, segment: Segment, size: Size, row: str) -> Tensor:
    """What an all-to-all sends, which is there beside what it receives."""
    tensor = Tensor(name=name, term="temporary", bytes=size, birth=At(segment, row), region="routed")
    return replace(tensor, fwd_end=At("F", row)) if segment == "F" else replace(tensor, bwd_end=At("B", row))


def restore_tokens(block: Block, ctx: Context) -> Block:
    """Give every rank of tp all tokens again behind the experts, whose work they shared: what each made of
    its tokens is gathered, or, where each made a part of all tokens (etp = tp), added up."""
    op = "all_reduce" if ctx.etp == ctx.tp else "all_gather"
    size = largest(junction.bytes for junction in block.junctions)
    row = Op(owner="mlp", op=op, axis="tp", payload=size)
    return replace(
        block,
        forward=behind(block.forward, replace(row, phase="F"), last_routed),
        backward=behind(block.backward, replace(row, phase="B"), last_routed),
    )


def layout(ranks: int, **levers: object) -> Layout:
    """All ranks are data parallel and have their own experts."""
    return Layout(**{"dp": ranks, "ep": ranks, **levers})  # type: ignore[arg-type]


def toy_of_experts(layout: Layout) -> Model:
    """`toy-15m` with four experts, or as many as there are ranks, of which a token uses two."""
    experts = max(4, layout.ep)
    return replace(model("toy-15m"), name="toy-15m of experts", moe=Moe(experts=experts, active=2, ffn=256))


PLAN = Plan(
    name="ep",
    axis="ep",
    step="expert",
    summary="Each rank holds E/ep of the experts; routed tokens travel to them and back, four times a layer.",
    levers={
        "ep": "ranks that the experts are shared out among",
        "etp": "ranks that split the width of an expert",
        "routing": "dropless, or with a capacity",
    },
    applies=lambda layout: layout.ep > 1 or layout.etp > 1 or layout.tp > 1,
    rewrite=route,
    layout=layout,
    framework="textbook",
    default_model=toy_of_experts,
)
