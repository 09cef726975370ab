"""DDP over distributed parameters: their gradients wait until the whole backward is over.

DDP takes local tensors, so torch makes the distributed ones over them in a forward hook, once, in the first
forward of all (`tensor/parallel/ddp.py`; later forwards find no parameter to make one of). Autograd runs
what was made first last: every gradient of such a parameter waits for the end of backward, where it goes to
the local tensor and DDP's buckets. In all micro-batches but the first both the sums and the new gradients are
there. The gradient of a split token table is whole until its own rows are cut out, last of all (torch 2.13).
"""

from dataclasses import replace

from playbook.program.block import Block, Tensor, Weight
from playbook.program.op import END, FIRST, At, Op, insert
from playbook.program.passes import Blocks
from playbook.program.policy import Context
from playbook.strategies.tp.dtensor import NEW_OTHERS, OTHERS, OWN_COPY


def waits(ctx: Context) -> bool:
    """Whether ranks are replicas of parts of split weights, by DTensor."""
    return ctx.policy.dtensor and ctx.tp > 1 and ctx.shard > 1


def distributed(weight: Weight) -> bool:
    """Whether a parameter is one: split, or whole with a gradient that is a partial sum."""
    return weight.tp_dim is not None or weight.partial is not None


def taken(weight: Weight, ctx: Context) -> At:
    """Where a new gradient is added to the sum, or ready to be sent."""
    return At("B", END, FIRST) if waits(ctx) and distributed(weight) else weight.taken or weight.ready


def whole_table(tensors: tuple[Tensor, ...], table: Weight | None, ctx: Context) -> tuple[Tensor, ...]:
    """Let a token table's gradient be whole to the end of each backward, and its own rows be cut there."""
    if not waits(ctx) or table is None or all(tensor.name != OTHERS for tensor in tensors):
        return tensors
    size, end = ctx.recipe.gradient_bytes * table.numel, At("B", END)
    cut = Tensor(name="own rows", term="temporary", bytes=size, birth=end, bwd_end=end, when="first")
    kept = (tensor for tensor in tensors if tensor.name not in (NEW_OTHERS, OWN_COPY))
    whole = (
        replace(tensor, bwd_end=end, when="every") if tensor.name == OTHERS else tensor for tensor in kept
    )
    return (*whole, cut)


def arrival(blocks: Blocks, order: list[tuple[int, Weight]]) -> list[tuple[int, Weight]]:
    """Weights in the order in which DDP gets their gradients: whole ones as backward makes them, distributed
    ones at its end, the last made first.

    Parameters
    ----------
    blocks
        Of the stage.
    order
        Weights with their block's index, as backward completes their gradients.
    """
    made = [(index, weight) for index, block in enumerate(blocks) for weight in block.weights]
    late = [pair for pair in reversed(made) if distributed(pair[1])]
    return [pair for pair in order if not distributed(pair[1])] + late


def send_last(block: Block, op: Op) -> Block:
    """Put a bucket's all-reduce at the end of backward, before the stage sends its own gradient on."""
    sends = [row.name for row in block.backward if row.axis == "pp"]
    where = {"before": sends[0]} if sends else {"after": END}
    return replace(block, backward=insert(block.backward, op, **where))
