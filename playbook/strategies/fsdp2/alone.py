"""`fully_shard` over one rank: nothing travels, and no flat buffer is gathered (torch 2.13).

Weights are still copied to where whole ones lie, one by one (`_fsdp_param_group.py`, `wait_for_unshard`), and
gradients are still laid out for a reduction whose output they are copied to (`foreach_reduce`).
"""

from dataclasses import replace

from playbook.program.block import Block
from playbook.program.op import Op

FLAT = ("flat", "flat again")
"""Tensors that only a gather makes."""

COPY = "copy_"


def alone(block: Block) -> Block:
    """Turn a block's collectives over data-parallel ranks into copies."""
    return replace(
        block,
        forward=tuple(map(copied, block.forward)),
        backward=tuple(map(copied, block.backward)),
        copies=tuple(map(copied, block.copies)),
        tensors=tuple(tensor for tensor in block.tensors if tensor.name not in FLAT),
    )


def copied(op: Op) -> Op:
    """The row of a collective as a copy in its place; any other as it is."""
    return replace(op, op=COPY, axis=None, payload=0, stream="compute") if op.axis == "dp" else op
