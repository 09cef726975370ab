"""The attention core as matrix products, scores and all: torch's math kernel, forward and backward.

Half precision is widened to FP32 at the start and narrowed at the end, and what the kernel's function holds
in its variables lives until then. Keys and values of grouped heads are copied to one for each query head.
Kept for backward are the queries and keys as they were multiplied, the probabilities and the values; the
output is copied once more where the heads go back into one row, since no kernel wrote it in that order.

Written down from traces of `_scaled_dot_product_attention_math` (aten/src/ATen/native/transformers/
attention.cpp of torch 2.13), with its copies that have no row of their own beside the row before them. What
the softmax takes and frees inside is there too: one byte a score forward, and on CUDA a product as large as
the scores backward.
"""

from collections.abc import Iterable
from dataclasses import replace

from playbook.frameworks.aten import WIDE
from playbook.frameworks.lines import Line, Made
from playbook.program.op import Region, Size
from playbook.program.policy import Sizes
from playbook.spec import Model

OWNER = "self_attn"


def grouped(z: Sizes) -> bool:
    """Whether query heads share keys and values."""
    return z.model.heads != z.model.kv_heads if isinstance(z.model, Model) else z.model.grouped


def by_math(z: Sizes) -> bool:
    """Whether attention runs as matrix products: where asked for, and on CUDA for grouped heads in FP32,
    which neither of its fused kernels takes."""
    return z.attention == "math" or (z.kernels == "cuda" and z.value == WIDE and grouped(z))


def query(z: Sizes) -> Size:
    """Bytes of all query heads in FP32."""
    return WIDE * z.T * z.a * z.k


def key(z: Sizes) -> Size:
    """Bytes of all key or value heads in FP32."""
    return WIDE * z.T * z.g * z.k


def scores(z: Sizes) -> Size:
    """Bytes of all scores in FP32."""
    return WIDE * z.b * z.a * z.s * z.s


def product_flops(z: Sizes) -> Size:
    """FLOPs of one of the core's products."""
    return 2 * z.b * z.s * z.s * z.a * z.k


def line(op: str, *makes: Made, holds: Iterable[str] = (), flops: Size = 0) -> Line:
    """One row of the core."""
    return Line(owner=OWNER, op=op, makes=makes, holds=tuple(holds), flops=flops, region="tp")


def core(lines: Iterable[Line]) -> list[Line]:
    """Rows that run again, or need what they make: the second forward ends where the last product begins."""
    return [replace(row, group="core") for row in lines]


def heads(name: str, size: Size, region: Region = "tp") -> Made:
    """Values by head."""
    return Made(name, size, region)


def math_forward(z: Sizes) -> list[Line]:
    """From rotated queries and keys, and values, to the output."""
    half, shared = z.value < WIDE, grouped(z)
    q, k, v = ("q wide", "k wide", "v wide") if half else ("q", "k", "v")
    Q, K, P = query(z), key(z), scores(z)
    widened = [
        line("_to_copy", heads("q wide", Q), holds=("q",)),
        line("_to_copy", heads("k wide", K, "kv"), holds=("k",)),
        line("_to_copy", heads("v wide", K, "kv"), holds=("v",)),
    ]
    copied = (heads("k heads", Q), heads("v heads", Q)) if shared else ()
    flat = (heads("q flat", Q),) if shared else (heads("q flat", Q), heads("k flat", Q))
    values = () if shared else (heads("v flat", Q),)
    output = narrow_output(z, (q, k, v), values) if half else [wide_output(z)]
    softmax = () if half else values
    again = [
        *(widened if half else []),
        line("mul", heads("q scaled", Q), holds=(q,)),
        line("ones", Made("ones", z.s * z.s, "whole")),
        line("tril", Made("lower", z.s * z.s, "whole"), holds=("ones",)),
        line("scalar_tensor"),
        line("scalar_tensor"),
        line(
            "where",
            Made("mask", WIDE * z.s * z.s, "whole"),
            *copied,
            holds=("lower", *((k, v) if shared else ())),
        ),
        line("mul", heads("k scaled", Q if shared else K), *flat, holds=("k heads" if shared else k,)),
        line(
            "bmm",
            Made("scores", P, "tp"),
            holds=("q flat", "k scaled", "k flat"),
            flops=product_flops(z),
        ),
        line("add", Made("masked scores", P, "tp"), holds=("scores", "mask")),
        line(
            "_safe_softmax",
            Made("probabilities", P, "tp"),
            Made("masked rows", z.b * z.a * z.s * (z.s + 1), "tp"),
            *softmax,
            holds=("masked scores", v),
        ),
        *(output[:1] if half else []),
    ]
    return [*core(again), *(output[1:] if half else output)]


def narrow_output(z: Sizes, qkv: tuple[str, ...], values: tuple[Made, ...]) -> list[Line]:
    """Probabilities in half precision, their product with the values in FP32, the output narrowed again."""
    narrow, heads_out = Made("narrow probabilities", scaled_to(scores(z), z), "tp"), z.value * z.T * z.a * z.k
    product = line("bmm", heads("o wide", query(z)), holds=weighted(z), flops=product_flops(z))
    held = ("o wide", *qkv, *held_by_core(z), narrow.name)
    return [
        line("_to_copy", narrow, *values, holds=("probabilities",)),
        product,
        line("_to_copy", heads("o heads", heads_out), heads("o", heads_out), holds=held),
    ]


def wide_output(z: Sizes) -> Line:
    """The product of probabilities and values, where all is FP32."""
    made = (heads("o heads", query(z)), heads("o", query(z)))
    return line("bmm", *made, holds=(*weighted(z), *held_by_core(z)), flops=product_flops(z))


def weighted(z: Sizes) -> tuple[str, str]:
    """What the last product multiplies."""
    return "probabilities", "v heads" if grouped(z) else "v flat"


def held_by_core(z: Sizes) -> tuple[str, ...]:
    """What lives as long as the core's own frame."""
    return ("q scaled", "mask", *(("k heads",) if grouped(z) else ()))


def scaled_to(size: Size, z: Sizes) -> Size:
    """A size in FP32 as one of forward's values, which are half as wide."""
    return z.value * z.b * z.a * z.s * z.s if z.value < WIDE else size


def math_backward(z: Sizes) -> list[Line]:
    """From the gradient of the output, `do`, to those of queries, keys and values."""
    half, shared = z.value < WIDE, grouped(z)
    Q, K, P = query(z), key(z), scores(z)
    keys, values = ("k scaled", "v heads") if shared else ("k flat", "v flat")
    flops = product_flops(z)
    given = [line("_to_copy", heads("do wide", Q), heads("do flat", Q), holds=("do",))] if half else []
    first = "do flat" if half else "do"
    dv, dk = ("dv heads", "dk heads") if shared else (("dv wide", "dk wide") if half else ("dv", "dk"))
    summed = [
        line("sum", heads("dv wide" if half else "dv", K, "kv"), holds=("dv heads",)),
        line("sum", heads("dk wide" if half else "dk", K, "kv"), holds=("dk heads",)),
    ]
    narrow = [
        line("_to_copy", heads("dv", z.value * z.T * z.g * z.k, "kv"), holds=("dv wide",)),
        line("_to_copy", heads("dk", z.value * z.T * z.g * z.k, "kv"), holds=("dk wide",)),
        line("_to_copy", heads("dq", z.value * z.T * z.a * z.k), holds=("dq wide",)),
    ]
    needing = [
        line("bmm", heads(dv, Q), holds=("probabilities", first), flops=flops),
        line("bmm", Made("dprobabilities", P, "tp"), holds=(first, values), flops=flops),
        line(
            "_softmax_backward_data",
            Made("dscores", P, "tp"),
            *((Made("dprobabilities times probabilities", P, "tp"),) if z.kernels == "cuda" else ()),
            holds=("dprobabilities", "probabilities"),
        ),
        line("bmm", heads("dk scaled", Q), holds=("dscores", "q flat"), flops=flops),
        line("bmm", heads("dq scaled", Q), holds=("dscores", keys, "q flat"), flops=flops),
    ]
    return [
        *given,
        *core(needing),
        line("mul", heads(dk, Q), holds=("dk scaled",)),
        *(summed if shared else []),
        line("mul", heads("dq wide" if half else "dq", Q), holds=("dq scaled",)),
        *(narrow if half else []),
    ]
