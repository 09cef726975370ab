"""What PyTorch's DTensor adds to tensor parallelism: tensors of collectives, gradients left as partial sums.

Its collectives give out new tensors. Under sequence parallelism the gradient of a norm's weight stays a
partial sum over the ranks until something uses it, and that of a norm of heads always does. The gradient of a
split token table is made whole on every rank, and cut to the rank's own rows when it is used (torch 2.13, on
real ranks and traced).
"""

from dataclasses import replace

from playbook.program.block import Block, Junction, Tensor, Weight
from playbook.program.op import END, OPTIMIZER, At, Op, Segment
from playbook.program.policy import Context
from playbook.program.state import added_up, widens
from playbook.strategies.tp.sequence_shares import before, with_shares

TABLE_GRADIENT = "embed_tokens/embedding_dense_backward#0"
TIED_SUM = "embed_tokens/add#0"

OTHERS, NEW_OTHERS, OWN_COPY = "rows of other ranks", "new rows of other ranks", "copy of own rows"
"""Names of what a split token table's gradient has beside this rank's own rows."""

OF_HEADS = ("q_norm", "k_norm")
"""Norms that each rank applies to its own heads, sequence parallelism or not."""

BIASES = ("self_attn.o_proj.bias", "mlp.down_proj.bias")
"""Biases behind products that are split by input features."""


def with_dtensor(block: Block, whole: tuple[Weight, ...], ctx: Context) -> Block:
    """Add DTensor's own to a block that is split already.

    Parameters
    ----------
    block
        The split block, its collectives inserted.
    whole
        Its weights before they were split.
    """
    block = with_shares(block, ctx) if ctx.sequence_parallel else block
    made = {(tensor.birth, tensor.bytes) for tensor in block.tensors}
    copies = [copy_of(op, "F") for op in block.forward if op.axis == "tp"]
    copies += [copy_of(op, "B") for op in block.backward if op.axis == "tp"]
    copies = [copy for copy in copies if (copy.birth, copy.bytes) not in made]
    copies = [joined_parts(copy, block) if "reduce_scatter" in copy.name else copy for copy in copies]
    gathering = [junction for junction in block.junctions if junction.gathers]
    copies += [gathered_share(junction, ctx) for junction in gathering]
    for junction in gathering:
        block = cut_gradient(block, junction, ctx)
    names = [op.name for op in block.backward]
    if TIED_SUM in names:
        copies += tied_gradient(block.weights[0], whole[0], ctx)
    elif TABLE_GRADIENT in names:
        copies += table_gradient(block.weights[0], whole[0], ctx)
    weights = tuple(left_partial(weight, ctx) for weight in block.weights)
    return replace(block, weights=weights, tensors=(*block.tensors, *copies))


def left_partial(weight: Weight, ctx: Context) -> Weight:
    """Mark a weight that every rank holds whole and that saw a part of the tokens only."""
    split = weight.tp_dim is not None or weight.expert
    seen = ctx.sequence_parallel or any(name in weight.name for name in OF_HEADS)
    split = split or weight.name in BIASES  # of gathered gradients, which all ranks have
    return replace(weight, partial="tp") if seen and not split else weight


def copy_of(op: Op, segment: Segment) -> Tensor:
    """The second tensor that is there while a collective runs."""
    at = At(segment, op.name)
    tensor = Tensor(name=f"copy in {op.name}", term="temporary", bytes=op.payload, birth=at)
    return replace(tensor, fwd_end=at) if segment == "F" else replace(tensor, bwd_end=at)


def joined_parts(copy: Tensor, block: Block) -> Tensor:
    """The parts of what a reduce-scatter of forward reads, side by side: joined in the row before it."""
    if copy.birth.segment != "F":
        return copy
    return replace(copy, birth=At("F", before(block.forward, copy.birth.row)))


def gathered_share(junction: Junction, ctx: Context) -> Tensor:
    """One rank's share of an output that is gathered, until it is."""
    assert junction.output_rows is not None
    return Tensor(
        name="share of the output",
        term="temporary",
        bytes=ctx.divide(junction.bytes, ctx.tp, "t"),
        birth=At("F", junction.output_rows[0]),
        fwd_end=At("F", f"{junction.leave}/all_gather@tp#{1 if ctx.sequence_parallel else 0}"),
    )


def cut_gradient(block: Block, junction: Junction, ctx: Context) -> Block:
    """Let the gradient of an output that was gathered go as it is made: the product's backward, in W too,
    reads a copy of the rank's share (torch 2.13, traced)."""
    forward, back = (f"{junction.leave}/mm#{place}" for place in range(2))
    tensors: list[Tensor] = []
    for tensor in block.tensors:
        if tensor.term == "logits" and tensor.bwd_end == At("B", back):
            size, birth = ctx.divide(tensor.bytes, ctx.tp, "t"), At("I", forward)
            tensors.append(replace(tensor, name="share of the gradient", bytes=size, birth=birth))
            tensor = replace(tensor, bwd_end=tensor.birth, weight_end=None)
        tensors.append(tensor)
    return replace(block, tensors=tuple(tensors))


def table_gradient(own: Weight, whole: Weight, ctx: Context) -> list[Tensor]:
    """The other ranks' rows of a token table's gradient, and the copy of its own that the optimizer reads."""
    row, recipe = At("B", TABLE_GRADIENT), ctx.recipe
    others = Tensor(
        name=OTHERS,
        term="gradients",
        bytes=recipe.compute_bytes * (whole.numel + -1 * own.numel),
        birth=row,
    )
    if ctx.shard > 1 and not added_up(ctx):
        # FSDP2 cuts its own rows out before it lets go of parameters and of the last reduction's input.
        size = recipe.compute_bytes * own.numel
        return [
            replace(others, bwd_end=At("B", END)),
            Tensor(name=OWN_COPY, term="temporary", bytes=size, birth=row, bwd_end=row),
        ]
    new = replace(others, name=NEW_OTHERS, bwd_end=row, when="later")
    if ctx.shard > 1:
        kept = max(recipe.compute_bytes, recipe.reduce_bytes) * (whole.numel + -1 * own.numel)
        return [replace(others, bytes=kept, bwd_end=At("B", END), when="step"), new]
    kept = replace(others, bwd_end=At("O", END), when="step")
    if widens(ctx) and ctx.optimizer_kernel != "fused":
        return [kept, new]  # the cut is gone before the kernel takes as much and more
    cut = Tensor(
        name="own rows",
        term="temporary",
        bytes=recipe.gradient_bytes * own.numel,
        birth=OPTIMIZER,
        fwd_end=OPTIMIZER,
    )
    return [kept, new, cut]


def tied_gradient(own: Weight, whole: Weight, ctx: Context) -> list[Tensor]:
    """The other ranks' rows of a tied table's gradient, and the copy of its own to which the head's part is
    added: only the sum is left (torch 2.13, traced)."""
    born, end, size = At("B", TABLE_GRADIENT), At("B", TIED_SUM), ctx.recipe.compute_bytes
    others = size * (whole.numel + -1 * own.numel)
    return [
        Tensor(name="other ranks' rows", term="gradients", bytes=others, birth=born, bwd_end=end),
        Tensor(name=OWN_COPY, term="temporary", bytes=size * own.numel, birth=born, bwd_end=end),
    ]
