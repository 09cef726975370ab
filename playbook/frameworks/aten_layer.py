"""One layer of the reference transformer as PyTorch runs it: aten operations, what each makes and holds."""

from dataclasses import replace

from playbook.frameworks.aten import (
    WIDE,
    linear_backward,
    linear_forward,
    norm_backward,
    norm_forward,
    rotate_backward,
    rotate_forward,
)
from playbook.frameworks.aten_math import by_math, math_backward, math_forward
from playbook.frameworks.lines import GRADIENT, INPUT, Line, Made, block
from playbook.program.block import Block, Junction
from playbook.program.op import Region, Size
from playbook.program.policy import Sizes


def layer(z: Sizes, layer: int = 0) -> Block:
    """One layer; all are alike."""
    stream = z.value * z.T * z.h
    return block(
        "layer",
        [*attention_forward(z), *feed_forward(z)],
        [*feed_backward(z), *attention_backward(z)],
        stream=stream,
        parameters=z.layer_parameters,
        junctions=(attention_junction(z, stream), feed_junction(z, stream)),
        layered=True,
    )


def attention_forward(z: Sizes) -> list[Line]:
    """Norm, projections, rotary positions, attention core, output, residual sum."""
    flag = z.model
    query, key = z.T * z.a * z.k, z.T * z.g * z.k
    lines = norm_forward(z, "input_layernorm", INPUT, "n1", z.T * z.h, z.T, "full")
    for name, size, region in by_head(query, key)[:2]:
        owner, out = f"self_attn.{name}_proj", f"{name} plain"
        first = f"{name} product" if flag.qk_norm else out
        made = Made(first, z.value * size, region)
        lines.append(linear_forward(owner, made, ("n1",), 2 * z.h * size, region, flag.qkv_bias))
        if flag.qk_norm:
            lines += norm_forward(z, f"self_attn.{name}_norm", first, out, size, z.T * heads(z, name), region)
    value = Made("v", z.value * key, "kv")
    lines.append(linear_forward("self_attn.v_proj", value, ("n1",), 2 * z.h * key, "kv", flag.qkv_bias))
    lines += rotate_forward(z, "q", query, "tp") + rotate_forward(z, "k", key, "kv")
    lines += math_forward(z) if by_math(z) else flash_forward(z, query)
    attended = Made("attended", z.value * z.T * z.h, "gathered")
    held = ("o", "o heads", "q", "k", "v", "n1")
    lines.append(linear_forward("self_attn.o_proj", attended, held, 2 * z.h * query, "tp", flag.output_bias))
    middle = Made("middle", z.value * z.T * z.h)
    return [*lines, Line(owner="", op="add", makes=(middle,), holds=(INPUT, "attended"))]


def flash_forward(z: Sizes, query: Size) -> list[Line]:
    """The attention core as one kernel, which keeps a sum for each row of scores."""
    core = (Made("o", z.value * query, "tp"), Made("log-sum-exp", WIDE * z.T * z.a, "tp"))
    held = ("q", "k", "v")
    flops = core_flops(z)
    return [
        Line(owner="self_attn", op="sdpa", makes=core, holds=held, flops=flops, region="tp", group="core")
    ]


def flash_backward(z: Sizes, query: Size, key: Size) -> list[Line]:
    """The core's backward, which works the scores out again."""
    made = tuple(Made(f"d{name}", z.value * size, region) for name, size, region in by_head(query, key))
    held = ("do", "q", "k", "v", "o", "log-sum-exp")
    flops = 10 * z.b * z.s * z.s * z.a * z.k
    row = Line(owner="self_attn", op="sdpa_backward", makes=made, holds=held, flops=flops, region="tp")
    return [replace(row, group="core")]


def heads(z: Sizes, name: str) -> Size:
    """Heads of queries, or of keys and values."""
    return z.a if name == "q" else z.g


def by_head(query: Size, key: Size) -> tuple[tuple[str, Size, Region], ...]:
    """Name, values and region of queries, keys and values."""
    return ("q", query, "tp"), ("k", key, "kv"), ("v", key, "kv")


def core_flops(z: Sizes) -> Size:
    """FLOPs of the attention core's forward: two products of the whole score matrix."""
    return 4 * z.b * z.s * z.s * z.a * z.k


def feed_forward(z: Sizes) -> list[Line]:
    """Norm, gated feed-forward part, residual sum."""
    wide, flops, bias = z.value * z.T * z.f, 2 * z.T * z.h * z.f, z.model.mlp_bias

    def product(name: str, made: Made, *holds: str) -> Line:
        return linear_forward(f"mlp.{name}_proj", made, holds, flops, "tp", bias)

    return [
        *norm_forward(z, "post_attention_layernorm", "middle", "n2", z.T * z.h, z.T, "full"),
        product("gate", Made("gate", wide, "tp"), "n2"),
        Line(owner="mlp", op="silu", makes=(Made("active", wide, "tp"),), holds=("gate",), region="tp"),
        product("up", Made("up", wide, "tp"), "n2"),
        Line(owner="mlp", op="mul", makes=(Made("gated", wide, "tp"),), holds=("active", "up"), region="tp"),
        product("down", Made("fed", z.value * z.T * z.h, "gathered"), "gated", "n2"),
        Line(owner="", op="add", holds=("middle", "fed", INPUT)),  # the caller's variable, until we return
    ]


def feed_backward(z: Sizes) -> list[Line]:
    """Backward of the feed-forward part, from the block's gradient to that of its middle."""
    stream, wide, flops = z.value * z.T * z.h, z.value * z.T * z.f, 2 * z.T * z.h * z.f
    norm = ("post_attention_layernorm", "middle", "dn2", "dmiddle")

    def product(name: str, into: str, given: str, makes: Made) -> list[Line]:
        return linear_backward(f"mlp.{name}_proj", into, given, makes, flops, "tp", z.model.mlp_bias)

    def line(owner: str, op: str, makes: Made, *holds: str, region: Region = "tp") -> Line:
        return Line(owner=owner, op=op, makes=(makes,), holds=holds, region=region)

    return [
        *product("down", "gated", GRADIENT, Made("dgated", wide, "tp")),
        line("mlp", "mul", Made("dup", wide, "tp"), "dgated", "active"),
        line("mlp", "mul", Made("dactive", wide, "tp"), "dgated", "active", "up"),
        *product("up", "n2", "dup", Made("dn2 of up", stream, "gathered")),
        line("mlp", "silu_backward", Made("dgate", wide, "tp"), "dactive", "gate"),
        *product("gate", "n2", "dgate", Made("dn2 of gate", stream, "gathered")),
        Line(
            owner="mlp.gate_proj",
            op="add",
            makes=(Made("dn2", stream, "gathered"),),
            holds=("dn2 of up", "dn2 of gate"),
            takes=("mlp.gate_proj.weight",),
        ),
        *norm_backward(z, *norm, z.T * z.h, z.T, "full", residual=GRADIENT),
    ]


def attention_backward(z: Sizes) -> list[Line]:
    """Backward of attention, from the gradient of the block's middle to that of its input."""
    query, key = z.T * z.a * z.k, z.T * z.g * z.k
    out = Made("do", z.value * query, "tp")
    lines = linear_backward(
        "self_attn.o_proj", "o", "dmiddle", out, 2 * z.h * query, "tp", z.model.output_bias
    )
    lines += [
        *(math_backward(z) if by_math(z) else flash_backward(z, query, key)),
        *rotate_backward(z, "k", key, "kv"),
        *rotate_backward(z, "q", query, "tp"),
    ]
    for name in "vkq":
        lines += projection_backward(z, name)
    norm = ("input_layernorm", INPUT, "dn1", None)
    return [*lines, *norm_backward(z, *norm, z.T * z.h, z.T, "full", residual="dmiddle")]


def projection_backward(z: Sizes, name: str) -> list[Line]:
    """Backward of the projection to v, k or q, in this order; gradients of their common input are added."""
    flag, owner = z.model, f"self_attn.{name}_proj"
    region: Region = "tp" if name == "q" else "kv"
    count = z.T * heads(z, name)
    size = count * z.k
    given = "dv" if name == "v" else f"d{name} plain"
    lines: list[Line] = []
    if flag.qk_norm and name != "v":
        norm = (f"self_attn.{name}_norm", f"{name} product", given, f"d{name} product")
        lines += norm_backward(z, *norm, size, count, region)
        given = f"d{name} product"
    through = Made(f"dn1 of {name}", z.value * z.T * z.h, "gathered")
    flops = 2 * z.h * size
    lines += linear_backward(owner, "n1", given, through, flops, region, flag.qkv_bias)
    if name == "v":
        return lines
    before, after = ("dn1 of v", "dn1 of v and k") if name == "k" else ("dn1 of v and k", "dn1")
    total = Made(after, z.value * z.T * z.h, "gathered")
    held, taken = (before, f"dn1 of {name}"), (f"{owner}.weight",)
    return [*lines, Line(owner=owner, op="add", makes=(total,), holds=held, takes=taken)]


def attention_junction(z: Sizes, stream: Size) -> Junction:
    """Attention as a tensor-parallel part; its collectives count to the layer."""
    product = "addmm" if z.model.qkv_bias else "mm"
    out = "addmm" if z.model.output_bias else "mm"
    return Junction(
        enter="",
        leave="",
        input_rows=(f"self_attn.q_proj/{product}#0", "self_attn.q_proj/add#0"),
        output_rows=(f"self_attn.o_proj/{out}#0", "self_attn.o_proj/mm#0"),
        bytes=stream,
    )


def feed_junction(z: Sizes, stream: Size) -> Junction:
    """The feed-forward part as a tensor-parallel part."""
    product = "addmm" if z.model.mlp_bias else "mm"
    return Junction(
        enter="",
        leave="",
        input_rows=(f"mlp.gate_proj/{product}#0", "mlp.gate_proj/add#0"),
        output_rows=(f"mlp.down_proj/{product}#0", "mlp.down_proj/mm#0"),
        bytes=stream,
    )
