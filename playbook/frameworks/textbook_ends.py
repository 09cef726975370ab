"""The ends of the papers' model: the token table, and the last norm with the head and the loss."""

from playbook.frameworks.parts import (
    backward,
    block_input,
    for_weights,
    forward,
    kept_gradient,
    product_backward,
    saved,
    weights,
)
from playbook.frameworks.textbook_chunked import chunked_head
from playbook.program.block import Block, Junction, Tensor
from playbook.program.op import END, START, At, rows
from playbook.program.policy import Sizes


def drops(z: Sizes) -> bool:
    """Whether the kind of model trains with dropout: GPT kinds do, as in the papers."""
    return z.model.norm == "layer"


def embedding(z: Sizes) -> Block:
    """The token table; its output belongs to the first layer."""
    look, back = "embed_tokens/embedding#0", "embed_tokens/embedding_dense_backward#0"
    mask = Tensor(
        name="dropout mask",
        term="activations",
        bytes=z.T * z.h,
        birth=At("F", END),
        fwd_end=At("F", END),
        bwd_end=At("I", START),
        region="full",
    )
    gradient = Tensor(
        name="gradient",
        term="temporary",
        bytes=z.value * z.T * z.h,
        birth=At("B", END, 1),
        weight_end=At("B", back),
        split_only=True,
        region="full",
    )
    return Block(
        name="embedding",
        forward=rows([forward("embed_tokens", "embedding")]),
        backward=rows([for_weights(backward("embed_tokens", "embedding_dense_backward"))]),
        tensors=(gradient, mask) if drops(z) else (gradient,),
        weights=weights(z.embedding_parameters, {p.name: back for p in z.embedding_parameters}),
        junctions=(Junction(leave="embed_tokens", output_rows=(look, back), bytes=z.value * z.T * z.h),),
    )


def head(z: Sizes) -> Block:
    """The last norm, the head and the loss, whose logits are kept in FP32; their gradient takes their place.

    Tensor parallelism splits the vocabulary, so a "parallel" loss is this one.
    """
    if z.loss == "chunked":
        return chunked_head(z)
    stream, flops = z.value * z.T * z.h, 2 * z.T * z.h * z.V
    product = "lm_head/mm#0"
    tensors = (
        block_input(stream, "norm/norm#0", "norm/norm_backward#0"),
        saved("norm output", stream, "norm/norm#0", product, "lm_head/mm#1", "gathered"),
        Tensor(
            name="logits",
            term="logits",
            bytes=4 * z.T * z.V,
            birth=At("F", product),
            fwd_end=At("F", "/cross_entropy#0"),
            bwd_end=At("B", "/cross_entropy_backward#0"),
            region="tp",
        ),
        kept_gradient("logits", z.value * z.T * z.V, product, "lm_head/mm#1", "tp"),
    )
    ready_at = {
        p.name: "lm_head/mm#1" if "lm_head" in p.name else "norm/norm_backward#0" for p in z.head_parameters
    }
    junction = Junction(enter="lm_head", input_rows=(product, "lm_head/mm#1"), again=product, bytes=stream)
    return Block(
        name="head",
        forward=rows(
            [forward("norm", "norm"), forward("lm_head", "mm", flops, "tp"), forward("", "cross_entropy")]
        ),
        backward=rows(
            [
                backward("", "cross_entropy_backward"),
                *product_backward("lm_head", flops, "tp"),
                backward("norm", "norm_backward"),
            ]
        ),
        tensors=tensors,
        weights=weights(z.head_parameters, ready_at),
        junctions=(junction,),
    )
