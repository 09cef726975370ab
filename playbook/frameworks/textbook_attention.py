"""Attention in the papers' accounting: projections by head, the core, the output projection."""

from dataclasses import replace

from playbook.frameworks.parts import (
    Branch,
    backward,
    forward,
    kept_gradient,
    product_backward,
    saved,
)
from playbook.frameworks.textbook_ends import drops
from playbook.program.block import Junction, Tensor
from playbook.program.op import At, Op, Region, Size
from playbook.program.policy import Sizes
from playbook.program.polynomial import scaled

CORE, CORE_BACK = "self_attn/sdpa#0", "self_attn/sdpa_backward#0"
OUTPUT = "self_attn.o_proj"

Products = dict[str, tuple[Size, Region]]
"""FLOPs and region of each product's forward, in order of issue."""


def attention(z: Sizes, layer: int = 0) -> Branch:
    """Attention with a projection each for queries, keys and values."""
    products = projections(z)
    into = [name for name in products if name != OUTPUT]
    return Branch(
        forward=(*(forward(name, "mm", *products[name]) for name in into), *core_forward(z, layer)),
        backward=(
            *core_backward(z, layer),
            *(row for name in reversed(into) for row in product_backward(name, *products[name])),
        ),
        tensors=(*heads(z), *core_tensors(z), *output_tensors(z, z.a * z.k), *output_gradients(z)),
        junctions=(attention_junction(z),),
        reads=("self_attn.v_proj/mm#0", "self_attn.q_proj/mm#1"),
        ends=f"{OUTPUT}/mm#0",
    )


def projections(z: Sizes) -> Products:
    """The four products of grouped attention."""
    query, key = 2 * z.T * z.h * z.a * z.k, 2 * z.T * z.h * z.g * z.k
    return {
        "self_attn.q_proj": (query, "tp"),
        "self_attn.k_proj": (key, "kv"),
        "self_attn.v_proj": (key, "kv"),
        OUTPUT: (query, "tp"),
    }


def attention_flops(z: Sizes, layer: int = 0) -> Size:
    """FLOPs of the attention core's forward: two products of the whole score matrix, or of a band of it as
    wide as the layer's window."""
    return 2 * z.b * z.s * z.keys(layer) * z.a * (z.query_dim + z.value_dim)


def core_forward(z: Sizes, layer: int) -> list[Op]:
    """The core, and the product behind it."""
    return [
        forward("self_attn", "sdpa", attention_flops(z, layer), "tp", "core"),
        forward(OUTPUT, "mm", 2 * z.T * z.h * z.a * z.value_dim, "tp"),
    ]


def core_backward(z: Sizes, layer: int) -> list[Op]:
    """The core's backward: 2.5 times its forward where flash attention works the scores out again."""
    core = attention_flops(z, layer)
    core = scaled(core, 5, 2) if z.attention == "flash" else core * 2
    return [
        *product_backward(OUTPUT, 2 * z.T * z.h * z.a * z.value_dim, "tp"),
        backward("self_attn", "sdpa_backward", core, "tp", "core"),
    ]


def heads(z: Sizes) -> list[Tensor]:
    """Queries, keys and values as the core reads them."""
    query, key = z.value * z.T * z.a * z.k, z.value * z.T * z.g * z.k
    return [
        saved("q", query, "self_attn.q_proj/mm#0", CORE, CORE_BACK, "tp"),
        saved("k", key, "self_attn.k_proj/mm#0", CORE, CORE_BACK, "kv"),
        saved("v", key, "self_attn.v_proj/mm#0", CORE, CORE_BACK, "kv"),
    ]


def core_tensors(z: Sizes) -> list[Tensor]:
    """What the attention core keeps: log-sum-exps, or the scores with their dropout."""
    if z.attention == "flash":
        return [saved("log-sum-exp", 4 * z.T * z.a, CORE, CORE, CORE_BACK, "tp")]
    scores = z.a * z.s * z.s * z.b
    kept = [saved("scores", z.value * scores, CORE, CORE, CORE_BACK, "tp", "core")]
    if drops(z):
        kept.append(saved("score mask", scores, CORE, CORE, CORE_BACK, "tp", "core"))
        kept.append(saved("dropped scores", z.value * scores, CORE, CORE, CORE_BACK, "tp", "core"))
    return kept


def output_tensors(z: Sizes, width: Size) -> list[Tensor]:
    """The core's output, which is the last product's input too, and the gradient of that product's output."""
    product, for_weight = f"{OUTPUT}/mm#0", f"{OUTPUT}/mm#1"
    kept = saved("attention output", z.value * z.T * width, CORE, product, CORE_BACK, "tp")
    return [
        replace(kept, weight_end=At("B", for_weight)),
        kept_gradient(OUTPUT, z.value * z.T * z.h, product, for_weight, "whole"),
    ]


def output_gradients(z: Sizes) -> list[Tensor]:
    """Gradients of queries, keys and values, which the core's backward makes and W takes."""
    query, key = z.value * z.T * z.a * z.k, z.value * z.T * z.g * z.k
    facts: list[tuple[str, Size, Region]] = [("q", query, "tp"), ("k", key, "kv"), ("v", key, "kv")]
    return [
        kept_gradient(f"self_attn.{name}_proj", size, CORE_BACK, f"self_attn.{name}_proj/mm#1", region)
        for name, size, region in facts
    ]


def attention_junction(z: Sizes) -> Junction:
    """Attention as a tensor-parallel part: split by heads."""
    return Junction(
        enter="",
        leave="",
        input_rows=("self_attn.q_proj/mm#0", "self_attn.q_proj/mm#1"),
        output_rows=(f"{OUTPUT}/mm#0", f"{OUTPUT}/mm#0"),
        again="self_attn.v_proj/mm#0",
        bytes=z.value * z.T * z.h,
    )
