"""What a fused layer's kernels hand to each other: memory that lives for a few rows, beside what the papers'
accounting counts as kept.

Forward: a row-split product makes its whole output before ranks add or scatter it. Backward: the gradient of
each product's input and output, from the row that makes it to the row that reads it last. The function
between the products up and down makes the gradients of its inputs while it still reads the gradient of its
output, which is where a layer of a Llama kind peaks.
"""

from dataclasses import replace

from playbook.frameworks.parts import passing, passing_back
from playbook.frameworks.textbook_attention import CORE_BACK
from playbook.program.block import Block, Tensor
from playbook.program.op import Size
from playbook.program.policy import Sizes

FLASH_SUMS = 4
"""Bytes of an element in which flash attention's backward adds up the gradient of the queries (FP32)."""


def with_passing(block: Block, z: Sizes, layer: int = 0) -> Block:
    """Add what passes between the rows of a layer of the papers' accounting."""
    rows = {op.name for op in block.backward}
    feed = () if z.routed(layer) else feed_forward(z)
    latent = z.model.mla is not None
    found = (*(() if latent else attention(z)), *feed, *streams(z, block))
    missing = [t.name for t in found if t.birth.segment == "B" and t.birth.row not in rows]
    assert not missing, f"no row makes {missing}"
    return replace(block, tensors=(*block.tensors, *found))


def attention(z: Sizes) -> list[Tensor]:
    """Gradients inside attention, and the sums of flash attention's backward."""
    wide, key = z.value * z.T * z.a * z.k, z.value * z.T * z.g * z.k
    found = [
        passing_back("d attention output", wide, "self_attn.o_proj/mm#0", CORE_BACK, "tp"),
        passing_back("d q", wide, CORE_BACK, "self_attn.q_proj/mm#1", "tp"),
        passing_back("d k", key, CORE_BACK, "self_attn.k_proj/mm#1", "kv"),
        passing_back("d v", key, CORE_BACK, "self_attn.v_proj/mm#1", "kv"),
    ]
    if z.attention == "flash":
        sums = FLASH_SUMS * z.T * z.a * z.k
        return [*found, passing_back("flash sums", sums, CORE_BACK, CORE_BACK, "tp")]
    scores = z.value * z.a * z.s * z.s * z.b
    return [*found, passing_back("d scores", scores, CORE_BACK, CORE_BACK, "tp")]


def feed_forward(z: Sizes) -> list[Tensor]:
    """Gradients inside a dense feed-forward part."""
    wide, back = z.value * z.T * z.f, "mlp/act_backward#0"
    into = ("gate_proj", "up_proj") if z.model.gated else ("up_proj",)
    return [
        passing_back("d activation", wide, "mlp.down_proj/mm#0", back, "tp"),
        *(passing_back(f"d {name}", wide, back, f"mlp.{name}/mm#1", "tp") for name in into),
    ]


def streams(z: Sizes, block: Block) -> list[Tensor]:
    """Whole tensors: outputs of row-split products, gradients of the inputs of column-split ones (the stream,
    or latent vectors), and the gradient of the stream itself."""
    whole: Size = z.value * z.T * z.h
    found = []
    for junction in block.junctions:
        if junction.output_rows is not None:
            made = junction.output_rows[0]
            found.append(passing(f"whole output of {made}", junction.bytes, made, made, "whole", "temporary"))
        if junction.input_rows is not None:
            end = junction.input_rows[1]
            first = end.rpartition("#")[0] + "#0"
            found.append(passing_back(f"whole d input of {first}", junction.bytes, first, end, "whole"))
    start, last = block.backward[0].name, block.backward[-1].name
    return [*found, passing_back("d stream", whole, start, last, "full")]
