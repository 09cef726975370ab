"""W as torch.distributed.pipelining runs it: one call of autograd for each weight's node, in module order.

A weight and its bias share a node, thus a call (`_backward.py` of torch 2.13, `stage_backward_weight`). The
gradients that a call has made keep their name until the next has made its own. Calls go from the first layer
to the last, so that nodes which serve no weight are still in reach of a later one, and with them what they
saved, until W ends.

A checkpoint computes its layer again for each call, and keeps of it what a node may still ask for: what only
weights' nodes saved goes as they run, all else stays until W ends. So each call adds another copy of nearly
all that the layer saves (`checkpoint.py`, `_checkpoint_hook` and `_recomputation_hook`: a recomputed tensor
lives as long as its call's handle, which goes when its node reads it in this call, or is freed). I is a call
of its own that runs every node, so of what it computed again nothing is left.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache

from playbook.program.block import Block, Tensor
from playbook.program.op import END, W_END, At, Op
from playbook.program.passes import Blocks, each
from playbook.program.recompute import AGAIN, handed_in

Turns = Mapping[str, int]
"""Call in which a row for weights runs, from 1 on."""


def call_by_call(blocks: Blocks, repeats: bool) -> Blocks:
    """Let W go through a stage's weights call by call; blocks without weights are left as they are.

    Parameters
    ----------
    blocks
        The stage's blocks, after recomputation.
    repeats
        Whether weights lie inside what is computed again, which is then done in every call.
    """
    return each(blocks, lambda block: rewrite(block, repeats))


@lru_cache(maxsize=32)  # the layers of all stages are a few kinds
def rewrite(block: Block, repeats: bool) -> Block:
    """Put a block's rows for weights in the order of calls, and add what each computes again."""
    nodes = nodes_of(block)
    if not nodes:
        return block
    turns = turns_of(block, nodes)
    again = tuple(op for op in block.backward if repeats and op.phase == "R")
    calls = range(1, len(nodes) + 1) if again else ()
    ordered = (replace(op, turn=2 * turns.get(op.name, 0)) for op in block.backward)
    repeated = (in_call(op, call) for call in calls for op in again)
    ends = {op.name: next_end(block, nodes, op.owner) for op in block.backward if op.owner in nodes}
    tensors = [apart(tensor, turns, ends, bool(again)) for tensor in block.tensors]
    for call in calls:
        tensors += of_call(block, turns, call, last=again[-1].name)
    return replace(block, backward=(*ordered, *repeated), tensors=tuple(tensors))


def nodes_of(block: Block) -> list[str]:
    """Owners of the weights in the order in which W asks for their gradients."""
    late = {op.owner for op in block.backward if op.for_weights}
    owners = (weight.name.rpartition(".")[0] for weight in block.weights if not weight.frozen)
    return [owner for owner in dict.fromkeys(owners) if owner in late]


def turns_of(block: Block, nodes: list[str]) -> Turns:
    """Say in which call the rows for weights run; one of no weight's node serves the next that is."""
    turns: dict[str, int] = {}
    call = 0
    for op in reversed(block.backward):
        if op.for_weights:
            call = nodes.index(op.owner) + 1 if op.owner in nodes else call
            turns[op.name] = call
    return turns


def in_call(op: Op, call: int) -> Op:
    """A row of the second forward in one of W's calls, before the rows for its weight."""
    return replace(op, name=named(op.name, call), for_weights=True, split_only=True, turn=2 * call - 1)


def named(name: str, call: int) -> str:
    """The name that a row or tensor of the second forward has in a call of W.

    Examples
    --------
    >>> named("R:mlp/mul#0", 3)
    'R3:mlp/mul#0'
    """
    return f"R{call}:{name.removeprefix(AGAIN)}"


def next_end(block: Block, nodes: list[str], owner: str) -> At:
    """Where the call after a node's ends, be it the first of the block behind."""
    place = nodes.index(owner) + 1
    after = nodes[place % len(nodes)]
    last = next(op.name for op in reversed(block.backward) if op.for_weights and op.owner == after)
    return At("B", last) if place < len(nodes) else At("B", last, 1, otherwise=END)


def apart(tensor: Tensor, turns: Turns, ends: Mapping[str, At], again: bool) -> Tensor:
    """A tensor of a block, computed again or not, as it lives where backward is split.

    A gradient that is added to an earlier one goes with the next call. Under a checkpoint what the layer was
    given stays until W ends, and what I computed again dies in I.
    """
    if tensor.term == "gradients" and tensor.when == "later" and tensor.birth.row in ends:
        return replace(tensor, weight_end=ends[tensor.birth.row])
    if again and handed_in(tensor) and tensor.bwd_end is not None:
        return replace(tensor, weight_end=W_END)
    if again and saved_again(tensor):
        assert tensor.bwd_end is not None
        return replace(tensor, weight_end=At("I", tensor.bwd_end.row))
    if tensor.saved_by and tensor.bwd_end is not None:
        return replace(tensor, weight_end=At("B", last_of(tensor.saved_by, turns)))
    return tensor


def last_of(rows: Iterable[str], turns: Turns) -> str:
    """The row that W runs last; rows in the order of backward, which a call keeps."""
    return sorted(rows, key=lambda row: turns[row])[-1]


def saved_again(tensor: Tensor) -> bool:
    """Whether it is a tensor of the second forward that a node of backward reads."""
    return born_again(tensor) and tensor.bwd_end is not None and not tensor.bwd_end.row.startswith(AGAIN)


def born_again(tensor: Tensor) -> bool:
    """Whether the second forward makes it."""
    return tensor.birth.segment == "B" and tensor.birth.row.startswith(AGAIN)


def of_call(block: Block, turns: Turns, call: int, last: str) -> Iterable[Tensor]:
    """What the second forward of one call makes."""
    for tensor in filter(born_again, block.tensors):
        assert tensor.bwd_end is not None
        end = kept_until(tensor, turns, call, last) if saved_again(tensor) else tensor.bwd_end
        if end.row.startswith(AGAIN):
            end = At("B", named(end.row, call))
        birth, name = At("B", named(tensor.birth.row, call)), named(tensor.name, call)
        yield replace(tensor, name=name, birth=birth, bwd_end=end, weight_end=None, split_only=True)


def kept_until(tensor: Tensor, turns: Turns, call: int, last: str) -> At:
    """Where a call's copy of a saved tensor goes: with the last node that may ask for it, at the end of its
    first row if that node reads it, else when the node is freed.

    If all those have run, only the graph of the second forward holds it, which goes with its last row.
    """
    readers = readers_of(tensor)
    if not readers:
        return W_END
    left = [row for row in readers if turns[row] >= call]
    if not left:
        return At("B", last)
    latest = last_of(left, turns)
    if turns[latest] == call:
        latest = next(row for row in left if turns[row] == call)
    return At("B", latest)


def readers_of(tensor: Tensor) -> tuple[str, ...]:
    """Rows for weights whose nodes alone saved a tensor."""
    if tensor.saved_by or tensor.weight_end is None or tensor.weight_end.segment != "B":
        return tensor.saved_by
    return (tensor.weight_end.row,)
