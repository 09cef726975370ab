"""The last norm and a head whose loss is worked out some rows at a time, so that whole logits never exist.

Forward makes the logits of a piece of the tokens, their loss, and at once the gradients of the piece of the
hidden states and of the head's weight; only those two stay. Backward hands them on. The gradient of the
weight is summed over pieces in FP32, 4·V·h bytes, beside the recipe's own.

Source: Hsu et al., Liger Kernel, 2024, section 3.2, fused linear cross entropy.
"""

from dataclasses import replace

from playbook.frameworks.parts import backward, block_input, for_weights, forward, passing, saved, weights
from playbook.program.block import Block, Junction, Tensor
from playbook.program.op import rows
from playbook.program.policy import Sizes

FP32 = 4
PRODUCT, THROUGH, FOR_WEIGHT = "lm_head/mm#0", "lm_head/mm#1", "lm_head/mm#2"
SCALE, ADD, NORM_BACK = "lm_head/mul#0", "lm_head/add#0", "norm/norm_backward#0"


def chunked_head(z: Sizes) -> Block:
    """The block; without the head's own gradient where weights are frozen."""
    stream, flops = z.value * z.T * z.h, 2 * z.T * z.h * z.V
    product = forward("lm_head", "mm", flops, "tp")
    ready = {p.name: NORM_BACK if p.name.startswith("norm") else ADD for p in z.head_parameters}
    return Block(
        name="head",
        forward=rows(
            [
                forward("norm", "norm"),
                product,
                forward("", "cross_entropy", region="tp"),
                forward("", "cross_entropy_backward", region="tp"),
                product,
                *([] if z.frozen else [product]),
            ]
        ),
        backward=rows(
            [
                backward("lm_head", "mul"),
                for_weights(backward("lm_head", "add", region="tp")),
                backward("norm", "norm_backward"),
            ]
        ),
        tensors=tensors(z),
        weights=weights(z.head_parameters, ready),
        junctions=(Junction(enter="lm_head", input_rows=(PRODUCT, SCALE), bytes=stream),),
    )


def tensors(z: Sizes) -> tuple[Tensor, ...]:
    """What the norm keeps, a piece of logits, and the two gradients."""
    stream, last = z.value * z.T * z.h, THROUGH if z.frozen else FOR_WEIGHT
    piece = replace(
        passing("logits", FP32 * z.loss_rows * z.V, PRODUCT, last, "tp", "logits"), per_token=False
    )
    table = saved("summed gradient of head", FP32 * z.V * z.h, FOR_WEIGHT, FOR_WEIGHT, ADD, "tp")
    return (
        block_input(stream, "norm/norm#0", NORM_BACK),
        passing("norm output", stream, "norm/norm#0", last, "gathered"),
        piece,
        saved("gradient of norm output", stream, THROUGH, last, SCALE, "gathered"),
        *([] if z.frozen else [replace(table, term="gradients", per_token=False)]),
    )
