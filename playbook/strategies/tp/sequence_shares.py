"""The stream of sequence parallelism by DTensor: whole between two collectives of a part, else a share.

In forward an all-gather makes the input of a part whole, beside the share that the caller holds until the
part is through; what a reduce-scatter reads goes with it. In backward the same the other way round: what is
gathered is there until the product behind it has taken it, for its input and for its weight (where a schedule
splits backward it waits for W in the place of the share), and the norm in front sees a share of what is
reduced (torch 2.13, traced).
"""

from collections.abc import Sequence
from dataclasses import replace

from playbook.program.block import Block, Junction, Tensor
from playbook.program.op import At, Op
from playbook.program.policy import Context


def with_shares(block: Block, ctx: Context) -> Block:
    """Give a block's stream and its gradients the sizes that they have at both ends of its split parts."""
    for junction in block.junctions:
        if junction.gathers:
            continue
        if junction.output_rows is not None:
            last, first_back = junction.output_rows
            block = reduced(block, junction, At("F", last), ctx)
            block = gathered_gradient(block, junction, first_back) if first_back is not None else block
        if junction.input_rows is not None:
            first, last_back = junction.input_rows
            block = gathered_input(block, junction, first, ctx)
            block = reduced(block, junction, At("B", last_back), ctx)
    return block


def before(ops: Sequence[Op], row: str) -> str:
    """The row in front of one."""
    names = [op.name for op in ops]
    return names[names.index(row) - 1]


def after(ops: Sequence[Op], row: str) -> Sequence[Op]:
    """The rows behind one."""
    return ops[[op.name for op in ops].index(row) + 1 :]


def gathered_input(block: Block, junction: Junction, first: str, ctx: Context) -> Block:
    """Make a norm's output whole where it is gathered; its caller holds the share until the part is through.

    Parameters
    ----------
    first
        First row of the products that read it.
    """
    gather = before(block.forward, first)
    born = At("F", before(block.forward, gather))
    end = next((op.name for op in after(block.forward, first) if op.axis == "tp"), first)
    tensors: list[Tensor] = []
    for tensor in block.tensors:
        if tensor.birth == born and tensor.bytes == junction.bytes:
            own = ctx.divide(tensor.bytes, ctx.tp, "t")
            held = replace(tensor, bwd_end=None, weight_end=None, saved_by=(), kept=None)
            tensors.append(share(held, own, birth=born, fwd_end=At("F", end)))
            tensor = replace(tensor, birth=At("F", gather))
        tensors.append(tensor)
    return replace(block, tensors=tuple(tensors))


def reduced(block: Block, junction: Junction, last: At, ctx: Context) -> Block:
    """Cut what a part makes, in either direction, to a share where it is reduced and scattered.

    Parameters
    ----------
    last
        Row that makes it.
    """
    ops = block.forward if last.segment == "F" else block.backward
    scatter = At(last.segment, after(ops, last.row)[0].name)
    tensors: list[Tensor] = []
    for tensor in block.tensors:
        if tensor.birth == last and tensor.bytes == junction.bytes:
            own = ctx.divide(tensor.bytes, ctx.tp, "t")
            tensors.append(share(tensor, own, birth=scatter))
            ends = {"fwd_end": scatter} if last.segment == "F" else {"bwd_end": scatter}
            tensor = replace(tensor, weight_end=None, **ends)
        tensors.append(tensor)
    return replace(block, tensors=tuple(tensors))


def share(tensor: Tensor, own: object, **places: At | None) -> Tensor:
    """A rank's share of a tensor, in its place or beside it."""
    return replace(tensor, name=f"share of {tensor.name}", bytes=own, **places)  # type: ignore[arg-type]


def gathered_gradient(block: Block, junction: Junction, first: str) -> Block:
    """Hold the gradient that is gathered before a product's backward until that is done.

    Parameters
    ----------
    first
        First row of the product's backward.
    """
    product = first.rpartition("/")[0]
    gather = At("B", before(block.backward, first))
    last = At("B", [op.name for op in block.backward if op.owner == product and op.op != "add"][-1])
    ready = [weight.ready for weight in block.weights if weight.name.startswith(f"{product}.")]
    whole = Tensor(
        name=f"gathered gradient of {product}",
        term="temporary",
        bytes=junction.bytes,
        birth=gather,
        bwd_end=last,
        weight_end=ready[-1],
    )
    tensors = (own_share(tensor, ready, gather) for tensor in block.tensors)
    return replace(block, tensors=(*tensors, whole))


def own_share(tensor: Tensor, ready: Sequence[At], gather: At) -> Tensor:
    """The share of a gradient that is gathered: W does not need it, for weight or bias, nor does the product
    itself."""
    if tensor.birth.segment != "B" or tensor.region != "full" or tensor.weight_end not in ready:
        return tensor
    end = gather if tensor.bwd_end in ready else tensor.bwd_end
    return replace(tensor, bwd_end=end, weight_end=None)
