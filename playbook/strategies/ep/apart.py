"""Experts on an axis of their own, a factor of the world: its ranks have the same tokens and other experts.

No token travels. A rank takes out of its own T tokens the rows that its experts get, T·K/ep where routing is
balanced, and what it hands back is one part of a sum over all experts. So over ep there are, for each layer
with experts and micro-batch, an all-reduce of the stream (T·h) behind the experts, and in backward one of the
gradients of the K routing weights of a token (4·T·K bytes), which makes the router's backward whole, and one
of the gradient of the experts' input (T·h). With these every rank of ep has the whole gradient of all that is
dense, and nothing of it is reduced over ep.

Each costs the bytes of one tensor of the stream where the exchange of tokens costs those of K: it pays where
a token uses many experts, and nothing else divides the dense part of the work by ep.

Source: derived from the sum over experts that a layer computes, as tensor parallelism's two all-reduces are
(Shoeybi et al., Megatron-LM, 2019, section 3); meshes with such an axis: nanotron's `ParallelContext`.
"""

from dataclasses import dataclass, replace

from playbook.program.block import Block
from playbook.program.op import Op, Size
from playbook.program.policy import Context
from playbook.strategies.ep.tokens import (
    behind,
    first_routed,
    gathers_tokens,
    largest,
    last_routed,
    routed_bytes,
    smallest,
    times,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """Bytes of what ranks of ep add up: the stream behind the experts, and the tokens' routing weights."""

    stream: Size
    weights: Size


def sums(block: Block, ctx: Context) -> Sums:
    """What is added up of a block that is not shared out yet: of a rank's part of the tokens, or of all where
    the ranks of etp split the width of an expert and have the same."""

    def mine(size: Size) -> Size:
        part = ctx.divide(size, ctx.tp, "t")
        return part if gathers_tokens(ctx) else times(part, ctx)

    stream = largest(junction.bytes for junction in block.junctions)
    return Sums(stream=mine(stream), weights=mine(smallest(routed_bytes(block))))


def add_up(block: Block, parts: Sums) -> Block:
    """Insert the all-reduces over ep."""
    stream = Op(owner="mlp", op="all_reduce", phase="B", axis="ep", payload=parts.stream, region="routed")
    weights = replace(stream, payload=parts.weights)
    return replace(
        block,
        forward=behind(block.forward, replace(stream, phase="F"), last_routed),
        backward=behind(behind(block.backward, weights, first_routed), stream, last_routed),
    )
