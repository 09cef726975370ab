"""Llama's norm and attention as plain operations, one kernel each; what each keeps and passes."""

from playbook.frameworks.parts import (
    Piece,
    backward,
    for_weights,
    forward,
    passing,
    passing_back,
    product_backward,
    saved,
)
from playbook.program.block import Tensor
from playbook.program.op import Op, Region, Size
from playbook.program.policy import Sizes
from playbook.program.polynomial import scaled

CORE, CORE_BACK = "self_attn/sdpa#0", "self_attn/sdpa_backward#0"


def norm(z: Sizes, owner: str, last_use: str, release: str, gradient_birth: str) -> Piece:
    """A root-mean-square norm in FP32.

    Parameters
    ----------
    z
        Sizes.
    owner
        The norm's module.
    last_use, release
        Rows of forward and backward that use its output last.
    gradient_birth
        Row of backward that makes the gradient of its output.
    """
    return rms_norm(z, owner, z.T * z.h, z.T, (last_use, release, gradient_birth), "full", "gathered")


def rms_norm(
    z: Sizes,
    owner: str,
    numel: Size,
    groups: Size,
    ends: tuple[str, str, str],
    region: Region,
    out: Region,
    output_kept: bool = True,
) -> Piece:
    """A norm over so many elements in so many groups; half precision is widened first.

    Its output is kept if what takes it needs it for backward: a product does, a rotation does not.
    """
    half = z.value == 2
    names = ["_to_copy"] * half + ["pow", "mean", "add", "rsqrt", "mul"] + ["_to_copy"] * half + ["mul"]
    weight = [for_weights(backward(owner, name, region=region)) for name in ("mul", "sum")]
    inner = ["mul", "mul", "sum", "pow", "mul", "div", "pow", "mul", "mul"]
    back = ["_to_copy"] * half + inner + ["_to_copy"] * half
    return Piece(
        forward=tuple(forward(owner, name, region=region) for name in names),
        backward=(
            backward(owner, "mul", region=region),
            *weight,
            *(backward(owner, name, region=region) for name in back),
        ),
        tensors=(
            *kept_by_norm(z, owner, numel, groups, ends, region),
            norm_output(z, owner, numel, ends, out, output_kept),
            *passed_by_norm(z, owner, numel, ends[2], region),
        ),
    )


def norm_output(z: Sizes, o: str, numel: Size, ends: tuple[str, str, str], out: Region, kept: bool) -> Tensor:
    """The output, which belongs to its consumer."""
    if kept:
        return saved(f"{o} output", z.value * numel, f"{o}/mul#1", ends[0], ends[1], out)
    return passing(f"{o} output", z.value * numel, f"{o}/mul#1", ends[0], out, "temporary")


def kept_by_norm(
    z: Sizes, o: str, numel: Size, groups: Size, ends: tuple[str, str, str], region: Region
) -> list[Tensor]:
    """Saved tensors: the FP32 input, 1/rms and the normalised output."""
    last = f"{o}/mul#6"
    kept = [
        saved(f"{o} 1/rms", 4 * groups, f"{o}/rsqrt#0", f"{o}/mul#0", f"{o}/mul#4", region),
    ]
    if z.value == 2:
        kept.append(saved(f"{o} wide", 4 * numel, f"{o}/_to_copy#0", f"{o}/mul#0", last, region))
        kept.append(saved(f"{o} normal", 2 * numel, f"{o}/_to_copy#1", f"{o}/mul#1", f"{o}/mul#1", region))
    else:
        kept.append(saved(f"{o} normal", 4 * numel, f"{o}/mul#0", f"{o}/mul#1", f"{o}/mul#1", region))
    return kept


def passed_by_norm(z: Sizes, o: str, numel: Size, gradient_birth: str, region: Region) -> list[Tensor]:
    """Temporaries of a norm, forward and backward."""
    half, wide = z.value == 2, 4 * numel
    widened, end = (f"{o}/_to_copy#0", f"{o}/_to_copy#1") if half else (f"{o}/mul#0", f"{o}/mul#6")
    passed = [
        passing(f"{o} squares", wide, f"{o}/pow#0", f"{o}/mean#0", region, "temporary"),
        passing_back(f"{o} d out", z.value * numel, gradient_birth, f"{o}/mul#1", region),
        passing_back(f"{o} d normal", z.value * numel, f"{o}/mul#0", widened, region),
        passing_back(f"{o} d weight", z.value * numel, f"{o}/mul#1", f"{o}/sum#0", region),
        passing_back(f"{o} d scaled", wide, widened, f"{o}/mul#3", region),
        passing_back(f"{o} d input", wide, f"{o}/mul#2", end, region),
        passing_back(f"{o} d rms", wide, f"{o}/mul#3", f"{o}/sum#1", region),
        passing_back(f"{o} d mean", wide, f"{o}/div#0", f"{o}/mul#6", region),
        passing_back(f"{o} d power", wide, f"{o}/pow#1", f"{o}/mul#6", region),
        passing_back(f"{o} d square", wide, f"{o}/mul#6", end, region),
    ]
    if half:
        passed.append(passing(f"{o} scaled", wide, f"{o}/mul#0", f"{o}/_to_copy#1", region, "temporary"))
        passed.append(passing_back(f"{o} d narrow", z.value * numel, end, end, region))
    return passed


def linear(z: Sizes, owner: str, out: Size, into: Size, region: Region, bias: bool) -> Piece:
    """A projection: one product forward, two backward (input, then weight), and a sum for the bias."""
    flops = 2 * z.T * out * into
    summed = (for_weights(backward(owner, "sum", region=region)),) if bias else ()
    return Piece(
        forward=(forward(owner, "addmm" if bias else "mm", flops, region),),
        backward=(*product_backward(owner, flops, region), *summed),
    )


def attention(z: Sizes) -> Piece:
    """Grouped-query attention with rotary positions and flash attention.

    Flash attention's backward costs 2.5 times its forward (Dao, FlashAttention-2, 2023).
    """
    model, wide, key = z.model, z.a * z.k, z.g * z.k
    q = linear(z, "self_attn.q_proj", wide, z.h, "tp", model.qkv_bias)
    k = linear(z, "self_attn.k_proj", key, z.h, "kv", model.qkv_bias)
    v = linear(z, "self_attn.v_proj", key, z.h, "kv", model.qkv_bias)
    o = linear(z, "self_attn.o_proj", z.h, wide, "tp", model.output_bias)
    core = 4 * z.b * z.s * z.s * wide
    norms = head_norms(z)
    tensors = (*heads_kept(z), *heads_passed(z), *(t for piece in norms for t in piece.tensors))
    return Piece(
        forward=(
            *q.forward,
            *norms[0].forward,
            *k.forward,
            *norms[1].forward,
            *v.forward,
            *rotation(),
            *rotation(),
            forward("self_attn", "sdpa", core, "tp", "core"),
            *o.forward,
        ),
        backward=(
            *o.backward,
            backward("self_attn", "sdpa_backward", scaled(core, 5, 2), "tp", "core"),
            *rotation_back(),
            *rotation_back(),
            *v.backward,
            *norms[1].backward,
            *k.backward,
            *norms[0].backward,
            *q.backward,
        ),
        tensors=tensors,
    )


def head_norms(z: Sizes) -> tuple[Piece, Piece]:
    """Norms on queries and keys, where the model has them; their outputs go into the rotation."""
    if not z.model.qk_norm:
        return Piece(), Piece()
    query = ("self_attn/mul#1", "self_attn/sdpa_backward#0", "self_attn/add#1")
    key = ("self_attn/mul#3", "self_attn/sdpa_backward#0", "self_attn/add#0")
    return (
        rms_norm(z, "self_attn.q_norm", z.T * z.a * z.k, z.T * z.a, query, "tp", "tp", output_kept=False),
        rms_norm(z, "self_attn.k_norm", z.T * z.g * z.k, z.T * z.g, key, "kv", "kv", output_kept=False),
    )


def rotation() -> list[Op]:
    """x · cos + rotate_half(x) · sin."""
    return [forward("self_attn", name, region="tp") for name in ("mul", "neg", "cat", "mul", "add")]


def rotation_back() -> list[Op]:
    """Its backward."""
    return [backward("self_attn", name, region="tp") for name in ("mul", "neg", "mul", "add")]


def heads_kept(z: Sizes) -> list[Tensor]:
    """Saved by attention: q and k after rotation, v, output, log-sum-exps."""
    wide, key = z.value * z.T * z.a * z.k, z.value * z.T * z.g * z.k
    product = "addmm" if z.model.qkv_bias else "mm"
    out = "addmm" if z.model.output_bias else "mm"
    return [
        saved("q", wide, "self_attn/add#0", CORE, CORE_BACK, "tp"),
        saved("k", key, "self_attn/add#1", CORE, CORE_BACK, "kv"),
        saved("v", key, f"self_attn.v_proj/{product}#0", CORE, CORE_BACK, "kv"),
        saved("attention output", wide, CORE, f"self_attn.o_proj/{out}#0", CORE_BACK, "tp"),
        saved("log-sum-exp", 4 * z.T * z.a, CORE, CORE, CORE_BACK, "tp"),
    ]


def heads_passed(z: Sizes) -> list[Tensor]:
    """Temporaries of attention."""
    wide, key = z.value * z.T * z.a * z.k, z.value * z.T * z.g * z.k
    stream, product = z.value * z.T * z.h, "addmm" if z.model.qkv_bias else "mm"
    out = "addmm" if z.model.output_bias else "mm"
    return [
        passing("q raw", wide, f"self_attn.q_proj/{product}#0", "self_attn/cat#0", "tp", "temporary"),
        passing("k raw", key, f"self_attn.k_proj/{product}#0", "self_attn/cat#1", "kv", "temporary"),
        passing("q cos", wide, "self_attn/mul#0", "self_attn/add#0", "tp", "temporary"),
        passing("q half", wide, "self_attn/cat#0", "self_attn/mul#1", "tp", "temporary"),
        passing("q sin", wide, "self_attn/mul#1", "self_attn/add#0", "tp", "temporary"),
        passing("o", stream, f"self_attn.o_proj/{out}#0", "/add#0", "full", "temporary"),
        passing_back("d attention", wide, "self_attn.o_proj/mm#0", CORE_BACK, "tp"),
        passing_back("flash sums", 4 * z.T * z.a * (z.k + 1), CORE_BACK, CORE_BACK, "tp"),
        passing_back("flash heads", 2 * wide, CORE_BACK, CORE_BACK, "tp"),
        passing_back("d q", wide, CORE_BACK, "self_attn.q_proj/mm#1", "tp"),
        passing_back("d k", key, CORE_BACK, "self_attn.k_proj/mm#1", "kv"),
        passing_back("d v", key, CORE_BACK, "self_attn.v_proj/mm#1", "kv"),
        passing_back("d q sin", wide, "self_attn/mul#2", "self_attn/add#1", "tp"),
        passing_back("d x", stream, "self_attn.q_proj/mm#0", "self_attn.q_proj/mm#0", "whole"),
    ]
