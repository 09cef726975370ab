"""The reference transformer as PyTorch runs it: its aten operations, forward and backward, module by module.

Written down from the code of `playbook.models.transformer` and from what autograd saves (derivatives.yaml of
torch 2.13), checked line by line against traces of real code. Sizes: T tokens, h hidden, a heads, g
key-value heads, k features of a head, f feed-forward, V vocabulary; the norm works in FP32 and casts where
values are half.
"""

from collections.abc import Sequence
from dataclasses import replace

from playbook.frameworks.lines import Line, Made
from playbook.program.op import Region, Size
from playbook.program.policy import Sizes

WIDE = 4
"""Bytes of a value that is computed in FP32 whatever the recipe."""


def norm_forward(
    z: Sizes, owner: str, into: str, out: str, numel: Size, count: Size, region: Region
) -> list[Line]:
    """RMS norm of `count` vectors, `numel` values in all; the output feeds split products unless it is a
    head's. The weight is multiplied in by a caller, behind the function whose variables hold what is wide."""
    half, own = z.value < WIDE, f"{owner} "
    wide = own + "wide" if half else into
    squares, mean, shifted, scale = (own + name for name in ("squares", "mean", "shifted", "scale"))
    scaled = own + "scaled" if half else own + "normal"
    lines = [
        *(
            [Line(owner=owner, op="_to_copy", makes=(Made(wide, WIDE * numel, region),), holds=(into,))]
            if half
            else []
        ),
        Line(owner=owner, op="pow", makes=(Made(squares, WIDE * numel, region),), holds=(wide,)),
        Line(owner=owner, op="mean", makes=(Made(mean, WIDE * count, region),), holds=(squares,)),
        Line(owner=owner, op="add", makes=(Made(shifted, WIDE * count, region),), holds=(mean,)),
        Line(owner=owner, op="rsqrt", makes=(Made(scale, WIDE * count, region),), holds=(shifted,)),
        Line(owner=owner, op="mul", makes=(Made(scaled, WIDE * numel, region),), holds=(wide, scale)),
    ]
    if half:
        normal = Made(own + "normal", z.value * numel, region)
        lines.append(Line(owner=owner, op="_to_copy", makes=(normal,), holds=(scaled, wide, scale)))
    gathered: Region = "gathered" if region == "full" else region
    made = Made(out, z.value * numel, gathered)
    return [*lines, Line(owner=owner, op="mul", makes=(made,), holds=(own + "normal",))]


def norm_backward(
    z: Sizes,
    owner: str,
    into: str,
    given: str,
    result: str | None,
    numel: Size,
    count: Size,
    region: Region,
    residual: str | None = None,
) -> list[Line]:
    """Backward of a norm; the gradient that goes round it is added where autograd adds it.

    Parameters
    ----------
    given, result
        Names of the gradients of the output and of the input; None for one that the block hands back.
    residual
        Gradient of the input's other use.
    """
    half, own = z.value < WIDE, f"{owner} "
    wide, scale, normal = own + "wide" if half else into, own + "scale", own + "normal"

    def big(name: str, size: int = WIDE) -> tuple[Made, ...]:
        return (Made(own + name, size * numel, region),)

    def small(name: str) -> tuple[Made, ...]:
        return (Made(own + name, WIDE * count, region),)

    def line(op: str, makes: tuple[Made, ...] = (), *holds: str) -> Line:
        return Line(owner=owner, op=op, makes=makes, holds=holds)

    dnormal, dscaled = own + "dnormal", own + ("dscaled" if half else "dnormal")
    made = () if result is None else (Made(result, z.value * numel, region),)
    weight = Line(
        owner=owner, op="sum", holds=(own + "products", given, normal), completes=(f"{owner}.weight",)
    )
    lines = [
        line("mul", big("dnormal", z.value), given),
        replace(line("mul", big("products", z.value), given, normal), for_weights=True),
        weight,
        *([line("_to_copy", big("dscaled"), dnormal)] if half else []),
        line("mul", big("weighed"), dscaled, wide),
        line("mul", big("direct"), dscaled, scale),
        line("sum", small("dscale"), own + "weighed", dscaled),
    ]
    inner = [
        line("pow", small("cube"), scale),
        line("mul", small("slope"), own + "cube"),
        line("mul", small("dmean"), own + "dscale", own + "slope", own + "cube", scale),
        line("div", big("spread"), own + "dmean"),
        line("pow", big("first power"), wide),
        line("mul", big("twice"), own + "first power"),
        line("mul", big("through"), own + "spread", own + "twice", own + "first power", wide),
    ]
    both = (own + "direct", own + "through")
    if half:
        narrow = big("dinput", z.value) if residual else made
        joined = [line("add", big("joined"), *both), line("_to_copy", narrow, own + "joined")]
        return [*lines, *inner, *joined, *([line("add", made, own + "dinput", residual)] if residual else [])]
    if residual is None:
        return [*lines, *inner, line("add", made, *both)]
    around = line("add", big("joined"), own + "direct", residual)
    return [*lines, around, *inner, line("add", made, own + "joined", own + "through")]


def linear_forward(
    owner: str, makes: Made, holds: Sequence[str], flops: Size, region: Region, bias: bool
) -> Line:
    """A product with a weight, and a bias added in the same kernel."""
    op = "addmm" if bias else "mm"
    return Line(owner=owner, op=op, makes=(makes,), holds=tuple(holds), flops=flops, region=region)


def linear_backward(
    owner: str, into: str, given: str, makes: Made, flops: Size, region: Region, bias: bool
) -> list[Line]:
    """Backward of a product: for its weight and for its input; with a bias the other way round, then the
    bias."""
    both, kernel = (given, into), (f"{owner}.weight",)
    weight = Line(owner=owner, op="mm", holds=both, flops=flops, region=region, completes=kernel)
    through = Line(owner=owner, op="mm", makes=(makes,), holds=both, flops=flops, region=region)
    if not bias:
        return [weight, replace(through, takes=kernel)]
    return [
        through,
        weight,
        Line(owner=owner, op="sum", holds=both, completes=(f"{owner}.bias",), takes=kernel),
    ]


def rotate_forward(z: Sizes, name: str, size: Size, region: Region) -> list[Line]:
    """Rotary positions on `name`: half of each head negated and swapped, times sine, added to the rest times
    cosine."""
    owner, bytes_ = "self_attn", z.value * size

    def line(op: str, made: str, *holds: str, size: Size = bytes_) -> Line:
        return Line(owner=owner, op=op, makes=(Made(f"{name} {made}", size, region),), holds=holds)

    return [
        line("mul", "cosine", f"{name} plain"),
        line("neg", "negated", f"{name} plain", size=z.value // 2 * size),
        line("cat", "swapped", f"{name} negated", f"{name} plain"),
        line("mul", "sine", f"{name} swapped"),
        Line(
            owner=owner,
            op="add",
            makes=(Made(name, bytes_, region),),
            holds=(f"{name} cosine", f"{name} sine", "q plain", "k plain"),
        ),
    ]


def rotate_backward(z: Sizes, name: str, size: Size, region: Region) -> list[Line]:
    """Backward of the rotation, from `d{name}` to `d{name} plain`."""
    owner, bytes_, given = "self_attn", z.value * size, f"d{name}"

    def line(op: str, made: str, *holds: str, size: Size = bytes_) -> Line:
        return Line(owner=owner, op=op, makes=(Made(f"{given} {made}", size, region),), holds=holds)

    return [
        line("mul", "sine", given),
        line("neg", "negated", f"{given} sine", size=z.value // 2 * size),
        line("mul", "cosine", given),
        line("cat", "swapped", f"{given} negated", f"{given} sine"),
        line("add", "plain", f"{given} cosine", f"{given} swapped"),
    ]
