"""Activation recomputation (checkpointing): what forward saves dies there, and backward runs the rows again.

Chen et al., Training Deep Nets with Sublinear Memory Cost, 2016 (full); Korthikanti et al., Reducing
Activation Recomputation in Large Transformer Models, 2022 (selective: only the attention core).

Where a schedule splits backward, the rows that run again are part of I, and what W reads of their results
stays until then. torch.distributed.pipelining runs them again in W too (`weight_calls`).
"""

from dataclasses import replace

from playbook.program.block import Block, Tensor
from playbook.program.op import START, At, Op
from playbook.program.passes import Blocks, each, enter

AGAIN = "R:"


def recompute(blocks: Blocks, mode: str, stops_early: bool, keeps: frozenset[str] = frozenset()) -> Blocks:
    """Apply a recompute mode to the layers of a stage.

    Parameters
    ----------
    blocks
        The stage's blocks; only layers are rewritten.
    mode
        "none", "selective" or "full".
    stops_early
        Whether the second forward ends with the row that bears the last saved tensor, or runs the block's
        every row.
    keeps
        Outputs that "selective" keeps, where it is not about the attention core.
    """
    if mode == "none":
        return blocks

    def rewrite(block: Block) -> Block:
        if not block.layered:
            return block
        if mode == "full":
            return full(block, stops_early)
        return all_but(block, keeps, stops_early) if keeps else selective(block)

    return each(blocks, rewrite)


def full(block: Block, stops_early: bool) -> Block:
    """Keep the block's inputs only, and run its forward again at the start of backward."""
    block = enter(block, "recompute")
    again = rows_again(block, stops_early)
    copied = {op.name for op in again}
    tensors: list[Tensor] = []
    for tensor in block.tensors:
        tensors += tensor_again(tensor, copied, last=again[-1].name if again else START)
    end = block.backward[-1].name
    tensors = [replace(t, term="activations", bwd_end=At("B", end)) if handed_in(t) else t for t in tensors]
    return replace(block, backward=(*again, *block.backward), tensors=tuple(tensors))


def all_but(block: Block, keeps: frozenset[str], stops_early: bool) -> Block:
    """Keep the block's inputs and some outputs, and run the rest of its forward again."""
    kept = [tensor for tensor in block.tensors if tensor.name in keeps]
    made = {tensor.birth.row for tensor in kept}
    others = replace(
        block,
        tensors=tuple(tensor for tensor in block.tensors if tensor.name not in keeps),
        forward=tuple(op for op in block.forward if op.name not in made),
    )
    again = full(others, stops_early)
    end = At("B", block.backward[-1].name)
    saved = (replace(tensor, term="activations", bwd_end=tensor.bwd_end or end) for tensor in kept)
    return replace(again, forward=block.forward, tensors=(*again.tensors, *saved))


def selective(block: Block) -> Block:
    """Run the attention core again just before the first row of backward that needs what it saved."""
    block = enter(block, "recompute")
    core = [op for op in block.forward if op.group == "core"]
    lost = [tensor for tensor in block.tensors if tensor.saved and tensor.group == "core"]
    if not core or not lost:
        return block
    again = tuple(as_again(op) for op in core)
    names = [op.name for op in block.backward]
    needed = min(names.index(first_use(tensor, block)) for tensor in lost)
    over = max(lost, key=lambda tensor: names.index(tensor.bwd_end.row) if tensor.bwd_end else -1)
    copied = {op.name for op in again}
    tensors: list[Tensor] = []
    for tensor in block.tensors:
        tensors += around_core(tensor, copied, last=again[-1].name, over=over)
    backward = (*block.backward[:needed], *again, *block.backward[needed:])
    return replace(block, backward=backward, tensors=tuple(tensors))


def around_core(tensor: Tensor, copied: set[str], *, last: str, over: Tensor) -> list[Tensor]:
    """What becomes of a tensor if the core runs again.

    Inputs stay as long as `over`, the tensor of the core that backward needs longest. What the second run
    made goes with its use, even where a schedule splits backward: a checkpoint hands it out once.
    """
    if tensor.group == "into core" and tensor.bwd_end is None:
        return [replace(tensor, term="activations", bwd_end=over.bwd_end, weight_end=over.weight_end)]
    if tensor.group != "core":
        return [tensor]
    first, *again = tensor_again(tensor, copied, last)
    if tensor.kept is not None:
        first = replace(first, bwd_end=tensor.kept[0], weight_end=tensor.kept[1])
    return [first, *(replace(copy, weight_end=None) for copy in again)]


def first_use(tensor: Tensor, block: Block) -> str:
    """Row of backward before which a core tensor must be back: the first row of the core's own backward."""
    core = [op.name for op in block.backward if op.group == "core"]
    if core:
        return core[0]
    assert tensor.bwd_end is not None
    return tensor.bwd_end.row


def rows_again(block: Block, stops_early: bool) -> tuple[Op, ...]:
    """Rows of forward that run again: all, or those up to the birth of the last saved tensor."""
    names = [op.name for op in block.forward]
    if not stops_early:
        return tuple(as_again(op) for op in block.forward)
    births = [names.index(t.birth.row) for t in block.tensors if t.saved and born_here(t)]
    return tuple(as_again(op) for op in block.forward[: max(births, default=-1) + 1])


def as_again(op: Op) -> Op:
    """The copy of a row of forward that backward runs."""
    return replace(op, phase="R", name=AGAIN + op.name)


def born_here(tensor: Tensor) -> bool:
    """Whether a tensor is born in this block's forward, not handed in by the block before."""
    return tensor.birth.segment == "F" and tensor.birth.block == 0


def handed_in(tensor: Tensor) -> bool:
    """Whether the block before hands a tensor in; the checkpoint holds it until its backward is over."""
    return tensor.birth.segment == "F" and tensor.birth.block != 0


def tensor_again(tensor: Tensor, copied: set[str], last: str) -> list[Tensor]:
    """What becomes of one tensor: inputs are kept for the second forward, the rest dies and is born again."""
    if tensor.birth.segment != "F" or tensor.fwd_end is None:
        return [tensor]
    if handed_in(tensor):
        return [tensor]
    first = replace(tensor, bwd_end=None, weight_end=None)
    if AGAIN + tensor.birth.row not in copied:
        return [first]
    birth = At("B", AGAIN + tensor.birth.row)
    death = tensor.bwd_end or mapped(tensor.fwd_end, copied, last)
    return [first, replace(tensor, name=AGAIN + tensor.name, birth=birth, fwd_end=None, bwd_end=death)]


def mapped(place: At, copied: set[str], last: str) -> At:
    """Where a last use in forward falls in the second forward; a use that is not run again ends with it."""
    name = AGAIN + place.row
    return At("B", name if place.block == 0 and name in copied else last)
