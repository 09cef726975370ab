"""How PyTorch shares an optimizer out: whole parameters, the largest first, each to the rank with the least.

`ZeroRedundancyOptimizer` (torch 2.13, `_partition_parameters`) never cuts a parameter. Shares are as uneven
as that makes them: among more ranks than parameters some hold nothing, and the first holds the token table.
A pipeline rank shares the parameters of all its stages out at once, in the order of the stages.
After the step every parameter is broadcast by itself, rank by rank.
"""

import heapq
from collections.abc import Sequence
from dataclasses import replace

from playbook.program.block import Block, Tensor, Weight
from playbook.program.op import Op, rows
from playbook.program.passes import Blocks
from playbook.program.policy import Context
from playbook.program.state import SCRATCH, int_of, widens

STATE_BYTES = {"moments": "moment_bytes", "master weights": "master_bytes"}
"""Shared tensors of a block, with the field of the recipe that says what a parameter takes of each."""

SCRATCH_NAME = "optimizer scratch"


def hand_out(blocks: Blocks, ctx: Context) -> Blocks:
    """Replace equal shares of the optimizer's state by this rank's whole parameters.

    All of this stage count at its first block that has weights, and the broadcasts of all the rank's stages
    at the first of them; formulas in symbols keep the equal share.
    """
    place = next((index for index, block in enumerate(blocks) if block.weights), None)
    if place is None or ctx.shard == 1 or ctx.even_shares:
        return blocks
    every = [] if ctx.symbolic else [*ctx.before, *(int_of(w.numel) for w in held(blocks)), *ctx.after]
    shares = partition(every, ctx.shard)
    own = range(len(ctx.before), len(every) - len(ctx.after))
    numels = [every[number] for number in shares[ctx.place(False)] if number in own]
    emptied: dict[int, Block] = {}
    found = [emptied.setdefault(id(block), resized(block, [], ctx)) for block in blocks]
    found[place] = resized(blocks[place], numels, ctx)
    if not ctx.symbolic and not ctx.before:
        in_turn = [every[number] for share in shares for number in share]
        found[0] = replace(found[0], optimizer=broadcasts(found[0], in_turn, ctx))
    return tuple(found)


def held(blocks: Sequence[Block]) -> list[Weight]:
    """All weights of a stage, in depth order."""
    return [weight for block in blocks for weight in block.weights]


def partition(numels: Sequence[int], ranks: int) -> list[list[int]]:
    """Numbers of the parameters of each rank; of equal ones the earlier goes first.

    Examples
    --------
    >>> partition([4, 9, 4, 1], 2)
    [[1], [0, 2, 3]]
    """
    shares: list[list[int]] = [[] for _ in range(ranks)]
    loads = [(0, rank) for rank in range(ranks)]
    for number in sorted(range(len(numels)), key=numels.__getitem__, reverse=True):
        load, rank = loads[0]
        shares[rank].append(number)
        heapq.heapreplace(loads, (load + numels[number], rank))
    return shares


def resized(block: Block, numels: Sequence[int], ctx: Context) -> Block:
    """A block whose shared state is that of some parameters, and that broadcasts nothing."""
    if ctx.symbolic:
        return replace(block)
    tensors = tuple(replace(tensor, bytes=size_of(tensor, numels, ctx)) for tensor in block.tensors)
    ops = tuple(op for op in block.optimizer if op.op != "broadcast")
    return replace(block, tensors=tensors, optimizer=ops)


def size_of(tensor: Tensor, numels: Sequence[int], ctx: Context) -> object:
    """Bytes of a shared tensor; of any other what it had."""
    if tensor.name in STATE_BYTES:
        return getattr(ctx.recipe, STATE_BYTES[tensor.name]) * sum(numels)
    if tensor.name != SCRATCH_NAME:
        return tensor.bytes
    each = ctx.recipe.master_bytes or ctx.recipe.parameter_bytes
    one_by_one = widens(ctx) or ctx.optimizer_kernel == "for-loop"
    copies = SCRATCH[ctx.optimizer_kernel] + widens(ctx)
    return each * copies * (max(numels, default=0) if one_by_one else sum(numels))


def broadcasts(block: Block, numels: Sequence[int], ctx: Context) -> tuple[Op, ...]:
    """One broadcast a parameter, in the order given."""
    made = [
        Op(
            owner="",
            op="broadcast",
            phase="O",
            axis="dp",
            payload=ctx.recipe.parameter_bytes * numel,
            stream="gather",
            absolute=True,
        )
        for numel in numels
    ]
    return rows((*block.optimizer, *made))
