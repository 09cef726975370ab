"""The dense feed-forward part in the papers' accounting; shared experts are one too."""

from playbook.frameworks.parts import Branch, backward, forward, kept_gradient, product_backward, saved
from playbook.program.block import Junction, Tensor
from playbook.program.op import Size
from playbook.program.policy import Sizes


def feed_forward(z: Sizes, owner: str = "mlp", width: Size | None = None) -> Branch:
    """A product up (two where it is gated), the function between, a product down.

    Parameters
    ----------
    z
        Sizes.
    owner
        The module.
    width
        Its features; those of a dense layer if not given.
    """
    wide = z.f if width is None else width
    flops = 2 * z.T * z.h * wide
    into = [f"{owner}.{name}" for name in (("gate_proj", "up_proj") if z.model.gated else ("up_proj",))]
    down = f"{owner}.down_proj"
    return Branch(
        forward=(
            *(forward(name, "mm", flops, "tp") for name in into),
            forward(owner, "act"),
            forward(down, "mm", flops, "tp"),
        ),
        backward=(
            *product_backward(down, flops, "tp"),
            backward(owner, "act_backward"),
            *(row for name in reversed(into) for row in product_backward(name, flops, "tp")),
        ),
        tensors=(*kept(z, owner, wide), *output_gradients(z, owner, wide)),
        junctions=(feed_forward_junction(z, owner),),
        reads=(f"{owner}.up_proj/mm#0", f"{into[0]}/mm#1"),
        ends=f"{down}/mm#0",
    )


def kept(z: Sizes, owner: str, width: Size) -> list[Tensor]:
    """What it keeps: the outputs of the products up, and the input of the one down."""
    act, act_back, down = f"{owner}/act#0", f"{owner}/act_backward#0", f"{owner}.down_proj/mm"
    wide, prefix = z.value * z.T * width, "" if owner == "mlp" else "shared "
    tensors = [
        saved(f"{prefix}up", wide, f"{owner}.up_proj/mm#0", act, act_back, "tp"),
        saved(f"{prefix}activation", wide, act, f"{down}#0", f"{down}#1", "tp"),
    ]
    if z.model.gated:
        tensors.append(saved(f"{prefix}gate", wide, f"{owner}.gate_proj/mm#0", act, act_back, "tp"))
    return tensors


def output_gradients(z: Sizes, owner: str, width: Size) -> list[Tensor]:
    """Gradients of the products' outputs, from the row that makes or takes them to W."""
    wide, act, down = z.value * z.T * width, f"{owner}/act_backward#0", f"{owner}.down_proj"
    names = ("gate_proj", "up_proj") if z.model.gated else ("up_proj",)
    return [
        *(kept_gradient(f"{owner}.{name}", wide, act, f"{owner}.{name}/mm#1", "tp") for name in names),
        kept_gradient(down, z.value * z.T * z.h, f"{down}/mm#0", f"{down}/mm#1", "whole"),
    ]


def feed_forward_junction(z: Sizes, owner: str = "mlp") -> Junction:
    """The feed-forward part as a tensor-parallel part: split by its features."""
    first = f"{owner}.gate_proj" if z.model.gated else f"{owner}.up_proj"
    down = f"{owner}.down_proj/mm#0"
    return Junction(
        enter="",
        leave="",
        input_rows=(f"{first}/mm#0", f"{first}/mm#1"),
        output_rows=(down, down),
        again=f"{owner}.up_proj/mm#0",
        bytes=z.value * z.T * z.h,
    )
