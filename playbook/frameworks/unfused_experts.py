"""Routed experts as Hugging Face's code computes them on CUDA: tokens sorted by expert, grouped products.

Line by line what `grouped_mm_experts_forward` and the routers of Mixtral and Qwen3-MoE run and what autograd
keeps of it. For each of n = T·K routed tokens that is, in BF16, 4h + 8e + 38 bytes: the sorted copy and the
output of the experts, gate and up in one product, SiLU, their product, and the indices and weights; 4E + 4 a
token beside. Mixtral weights its outputs in FP32, so that copies of the features of all routed tokens pass in
FP32. Chosen weights are taken as divided by their sum, as both families' published configurations say.

Backward writes the gradients of an index into zeros in place; a trace under a dispatch mode shows a copy.

Source: transformers 5.24, integrations/moe.py and the two modelling files. Rows, saved bytes and the peak of
two layers agree with that code under torch 2.13 on CPU, and peaks of seven twins on an H200 (torch 2.11)
within 0.5 %. That code of 5.17 copied gate and up once more, to blank out slots of other ranks.
"""

from playbook.frameworks.lines import Line, Made, Segment, of_backward, of_forward
from playbook.frameworks.parts import Piece, passing
from playbook.program.op import Size
from playbook.program.policy import Sizes
from playbook.spec import Model

GATE, EXPERTS, WIDE = "mlp.gate", "mlp.experts", 4
FAMILIES = ("mixtral", "qwen3_moe")
"""Families whose router and experts are these."""

LAST_READ, ROUTER_GRADIENT, FIRST_GRADIENT = (
    f"{EXPERTS}/index#0",
    f"{GATE}/mm#0",
    f"{EXPERTS}/new_zeros#2",
)
"""Rows of the input: its last reader in forward, its last in backward, and what makes its gradient."""


def known_experts(model: Model) -> bool:
    """Whether a model's experts are of the kinds whose code is written down here."""
    moe = model.moe
    if moe is None or moe.shared_ffn or moe.router_bias or moe.expert_bias or moe.balancing_bias:
        return False
    return model.family in FAMILIES


def experts(z: Sizes) -> Piece:
    """Router and experts of a layer."""
    ahead = Segment("F", [*router(z), *dispatch(z), *products(z), *combine(z)])
    back = Segment("B", [*combine_backward(z), *products_backward(z), *router_backward(z)])
    made = f"{EXPERTS}/_to_copy#1" if casts(z) else f"{EXPERTS}/sum#0"
    fed = passing("fed", z.value * z.T * z.h, made, "/add#1", "full", "temporary")
    return Piece(
        forward=ahead.rows,
        backward=back.rows,
        tensors=(*of_forward(ahead, back), *of_backward(back), fed),
    )


def ready() -> dict[str, str]:
    """Row of backward that makes the gradient of each weight; gate and up are one tensor."""
    down, up = f"{EXPERTS}/_grouped_mm#0", f"{EXPERTS}/_grouped_mm#2"
    found = {f"{EXPERTS}.{name}_proj": row for name, row in (("gate", up), ("up", up), ("down", down))}
    return {**found, f"{GATE}.weight": ROUTER_GRADIENT}


def weighted_bytes(z: Sizes) -> int:
    """Bytes of a routing weight, and of what it has been multiplied with."""
    return WIDE if z.model.family == "mixtral" else z.value


def casts(z: Sizes) -> bool:
    """Whether the weighted sum is cast back."""
    return weighted_bytes(z) != z.value


def line(owner: str, op: str, *holds: str, makes: tuple[Made, ...] = (), flops: Size = 0) -> Line:
    """One operation."""
    return Line(owner=owner, op=op, makes=makes, holds=holds, flops=flops)


def made(name: str, size: Size) -> tuple[Made]:
    """The one tensor that a line makes."""
    return (Made(name, size),)


def router(z: Sizes) -> list[Line]:
    """Scores in FP32, the K best of each token, divided by their sum."""
    scores, each = z.T * z.E, WIDE * z.n
    narrow = [line(GATE, "_to_copy", "chosen", makes=made("routing weights", z.value * z.n))]
    widen = [line(GATE, "_to_copy", "logits", makes=made("wide logits", WIDE * scores))]
    wide = "wide logits" if z.value < WIDE else "logits"
    return [
        line(GATE, "mm", makes=made("logits", z.value * scores), flops=2 * z.h * scores),
        *(widen if z.value < WIDE else []),
        line(GATE, "_softmax", wide, makes=made("probabilities", WIDE * scores)),
        line(GATE, "topk", "probabilities", makes=(Made("chosen", each), Made("choice", 8 * z.n))),
        line(GATE, "sum", "chosen", makes=made("sum of chosen", WIDE * z.T)),
        line(GATE, "clone", "chosen", makes=made("undivided", each)),
        line(GATE, "div_", "chosen", "sum of chosen"),
        *(narrow if not casts(z) and z.value < WIDE else []),
    ]


def dispatch(z: Sizes) -> list[Line]:
    """Tokens in the order of their experts."""
    index = 8 * z.n
    weights = made("sorted weights", weighted_bytes(z) * z.n)
    return [
        line(EXPERTS, "sort", "choice", makes=(Made("sorted", index), Made("permutation", index))),
        line(EXPERTS, "floor_divide", "permutation", makes=made("source", index)),
        line(EXPERTS, "index", "source", makes=made("dispatched", z.value * z.n * z.h)),
        line(EXPERTS, "index", "permutation", "routing weights", makes=weights),
        line(EXPERTS, "_to_copy", "sorted", makes=made("narrow sorted", 4 * z.n)),
        line(EXPERTS, "histc", "narrow sorted", makes=made("counts", 4 * z.E)),
        line(EXPERTS, "cumsum", "counts", makes=made("offsets", 4 * z.E)),
    ]


def products(z: Sizes) -> list[Line]:
    """Gate and up in one grouped product, SwiGLU, the grouped product down."""
    wide, flops = z.value * z.n * z.e, 2 * z.n * z.h * z.e
    out = made("expert output", z.value * z.n * z.h)
    return [
        line(EXPERTS, "_grouped_mm", "dispatched", makes=made("gate and up", 2 * wide), flops=2 * flops),
        line(EXPERTS, "silu", "gate and up", makes=made("silu", wide)),
        line(EXPERTS, "mul", "silu", "gate and up", makes=made("product", wide)),
        line(EXPERTS, "_grouped_mm", "product", "offsets", makes=out, flops=flops),
    ]


def combine(z: Sizes) -> list[Line]:
    """Weighted outputs in the order of the tokens, added up; names that live to the function's end."""
    features, index = weighted_bytes(z) * z.n * z.h, 8 * z.n
    kept = ("restored", "sorted", "counts", "chosen", "routing weights", "logits")
    total = made("combined", weighted_bytes(z) * z.T * z.h) if casts(z) else ()
    cast = [line(EXPERTS, "_to_copy", "combined", *kept)] if casts(z) else []
    return [
        line(EXPERTS, "mul", "expert output", "sorted weights", makes=made("weighted", features)),
        line(EXPERTS, "empty_like", makes=made("inverse", index)),
        line(EXPERTS, "arange", makes=made("numbers", index)),
        line(EXPERTS, "index_put_", "inverse", "numbers", "permutation"),
        line(EXPERTS, "index", "weighted", "inverse", makes=made("restored", features)),
        line(EXPERTS, "sum", *kept, makes=total),
        *cast,
    ]


def combine_backward(z: Sizes) -> list[Line]:
    """From the gradient of the output to that of each expert's output, and of the weights.

    The product's node casts and sums its gradients to their tensors before it lets go of what it saved.
    """
    features = weighted_bytes(z) * z.n * z.h
    widen = [line(EXPERTS, "_to_copy", makes=made("d combined", WIDE * z.T * z.h))]
    node = ("d weighted", "expert output", "sorted weights")
    cast = made("d output", z.value * z.n * z.h)
    narrow = [line(EXPERTS, "_to_copy", "d output wide", *node, makes=cast)]
    weights = made("d weights", weighted_bytes(z) * z.n)
    output = "d output wide" if casts(z) else "d output"
    return [
        *(widen if casts(z) else []),
        line(EXPERTS, "clone", "d combined", makes=made("d restored", features)),
        line(EXPERTS, "new_zeros", makes=made("d weighted", features)),
        line(EXPERTS, "index_put", "d restored", "d weighted", "inverse"),
        line(EXPERTS, "mul", makes=made("d weights by feature", features)),
        line(EXPERTS, "mul", makes=made(output, features)),
        *(narrow if casts(z) else []),
        line(EXPERTS, "sum", "d weights by feature", *node, makes=weights),
    ]


def products_backward(z: Sizes) -> list[Line]:
    """Backward of the grouped products, weights first, and of SwiGLU; then of the sorting."""
    wide, flops = z.value * z.n * z.e, 2 * z.n * z.h * z.e
    down, into = (f"{EXPERTS}.down_proj",), (f"{EXPERTS}.gate_proj", f"{EXPERTS}.up_proj")
    grouped, spread = "_grouped_mm", made("d sorted weights", weighted_bytes(z) * z.n)
    return [
        Line(owner=EXPERTS, op=grouped, holds=("d output", "product"), completes=down, flops=flops),
        line(EXPERTS, grouped, "d output", makes=made("d product", wide), flops=flops),
        line(EXPERTS, "mul", "d product", "silu", makes=made("d up", wide)),
        line(EXPERTS, "mul", "d product", "silu", "gate and up", makes=made("d silu", wide)),
        line(EXPERTS, "silu_backward", "d silu", "gate and up", makes=made("d gate", wide)),
        line(EXPERTS, "cat", "d gate", "d up", makes=made("d gate and up", 2 * wide)),
        Line(
            owner=EXPERTS,
            op=grouped,
            holds=("d gate and up", "dispatched"),
            completes=into,
            flops=2 * flops,
        ),
        line(
            EXPERTS,
            grouped,
            "d gate and up",
            "offsets",
            makes=made("d dispatched", z.value * z.n * z.h),
            flops=2 * flops,
        ),
        line(EXPERTS, "new_zeros", makes=spread),
        line(EXPERTS, "index_put", "d weights", "d sorted weights", "permutation"),
        line(EXPERTS, "new_zeros"),
        line(EXPERTS, "index_put", "d dispatched", "source"),
    ]


def router_backward(z: Sizes) -> list[Line]:
    """Backward of the division, the choice and the softmax, and of the router's product, weight first."""
    scores, stream, flops = z.T * z.E, z.value * z.T * z.h, 2 * z.T * z.h * z.E
    half = z.value < WIDE
    of_narrow = [line(GATE, "_to_copy", "d sorted weights")] if half and not casts(z) else []
    narrow = [line(GATE, "_to_copy", "d wide logits", makes=made("d logits", z.value * scores))]
    wide = "d wide logits" if half else "d logits"
    both = made("d input twice", stream)
    return [
        *of_narrow,
        *(line(GATE, op, "d sorted weights") for op in ("div", "div", "neg", "mul", "div", "sum", "add")),
        line(GATE, "new_zeros", "undivided", "sum of chosen", makes=made("d chosen", WIDE * scores)),
        line(GATE, "scatter", "d chosen", "choice", makes=made("d probabilities", WIDE * scores)),
        line(
            GATE,
            "_softmax_backward_data",
            "d probabilities",
            "probabilities",
            makes=made(wide, WIDE * scores),
        ),
        *(narrow if half else []),
        Line(owner=GATE, op="mm", holds=("d logits",), completes=(f"{GATE}.weight",), flops=flops),
        line(GATE, "mm", "d logits", makes=made("d input of router", stream), flops=flops),
        line("mlp", "add", "d input of router", makes=both),
    ]
