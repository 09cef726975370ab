"""Context parallelism as a pass: each rank holds 1/c of every sequence; the attention core sees all of it.

Communicates over cp, for each layer and micro-batch, with K and V the bytes of a rank's own keys and values:
`ring` passes K + V around in c − 1 hops, and with their gradients in backward, 3 (c − 1)(K + V) in all;
`all-gather` gathers them in forward and again in backward and reduce-scatters their gradients, as many bytes;
`ulysses` exchanges tokens for heads by four all-to-alls each way. Weights are whole on every rank and saw a
part of the tokens, so their gradients are reduced over dp and cp as one group, on axis "dp".

A causal mask leaves the rank with the last tokens most of the work where each has one piece of the sequence
(`contiguous`); with two pieces, one from either end (`zigzag`), all have as much.

Sources: Liu et al., Ring Attention, 2023; Jacobs et al., DeepSpeed Ulysses, 2023; Llama Team, The Llama 3
Herd of Models, 2024, section 3.3.2 (all-gather); Transformer Engine's `AttnFuncWithCPAndKVP2P`, read.
"""

from dataclasses import replace

from playbook.program.block import Block, Junction, Tensor
from playbook.program.op import Op, Size
from playbook.program.passes import Blocks, Plan, each, enter
from playbook.program.policy import Context
from playbook.program.polynomial import scaled
from playbook.spec import Layout
from playbook.strategies.cp.core import Core, core_of
from playbook.strategies.cp.methods import METHODS

NOT_PER_TOKEN = ("gradients", "workspace", "parameters", "optimizer", "master_weights")
"""Terms whose bytes are those of weights, not of tokens."""


def split(blocks: Blocks, ctx: Context) -> Blocks:
    """Cut the sequence of every block, and bring keys and values to the attention cores."""
    if ctx.cp == 1:
        return blocks
    return each(blocks, lambda block: split_block(block, ctx))


def split_block(block: Block, ctx: Context) -> Block:
    """Divide one block's tensors, FLOPs and payloads by the ranks, and insert what its core needs."""
    block = enter(block, "context")
    core = core_of(block, ctx)
    block = replace(
        block,
        tensors=tuple(local_tensor(tensor, ctx) for tensor in block.tensors),
        forward=tuple(local_op(op, ctx, core) for op in block.forward),
        backward=tuple(local_op(op, ctx, core) for op in block.backward),
        junctions=tuple(local_junction(junction, ctx) for junction in block.junctions),
    )
    return METHODS[ctx.cp_method](block, core, ctx) if core is not None else block


def local_tensor(tensor: Tensor, ctx: Context) -> Tensor:
    """One rank's part of a tensor; what is as large as weights stays."""
    weights = tensor.term in NOT_PER_TOKEN or tensor.birth.segment in "SO"
    if weights or not tensor.per_token:
        return tensor
    return replace(tensor, bytes=ctx.divide(tensor.bytes, ctx.cp, "c"))


def local_op(op: Op, ctx: Context, core: Core | None) -> Op:
    """One rank's part of a row."""
    payload = ctx.divide(op.payload, ctx.cp, "c")
    if core is not None and op.name in (core.forward, core.backward):
        return replace(op, flops=core_flops(op.flops, core, ctx), payload=payload)
    return replace(op, flops=ctx.divide(op.flops, ctx.cp, "c"), payload=payload)


def core_flops(flops: Size, core: Core, ctx: Context) -> Size:
    """A rank's part of the scores.

    Of the c² squares of a causal score matrix in contiguous pieces, rank r needs the halves on the diagonal
    and r whole ones before it: (2 r + 1)/c² of the work. Zigzag pieces, heads and windows share equally.
    """
    uneven = ctx.cp_split == "contiguous" and ctx.cp_method != "ulysses" and not core.windowed
    if not uneven or ctx.symbolic:
        return ctx.divide(flops, ctx.cp, "c")
    return scaled(flops, 2 * ctx.cp_rank + 1, ctx.cp**2)


def local_junction(junction: Junction, ctx: Context) -> Junction:
    """What travels over tp at one end of a tensor-parallel part."""
    return replace(junction, bytes=ctx.divide(junction.bytes, ctx.cp, "c"))


def layout(ranks: int, **levers: object) -> Layout:
    """All ranks share each sequence."""
    return Layout(cp=ranks, **levers)  # type: ignore[arg-type]


PLAN = Plan(
    name="cp",
    axis="cp",
    step="context",
    summary="Each rank holds 1/c of every sequence; keys and values travel, weights are whole everywhere.",
    levers={
        "cp_method": "how keys and values travel: ring, all-gather or ulysses",
        "cp_split": "contiguous pieces of the sequence, or zigzag ones of equal work under a causal mask",
    },
    applies=lambda layout: layout.cp > 1,
    rewrite=split,
    layout=layout,
)
