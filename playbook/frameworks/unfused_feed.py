"""Llama's feed-forward part as plain operations, one kernel each; what it keeps and passes."""

from playbook.frameworks.parts import Piece, backward, forward, passing, passing_back, saved
from playbook.frameworks.unfused import linear
from playbook.program.block import Tensor
from playbook.program.policy import Sizes


def feed_forward(z: Sizes) -> Piece:
    """SwiGLU: gate, SiLU, up, product, down."""
    bias, act = z.model.mlp_bias, "mlp.act_fn"
    gate, up, down = (
        linear(z, f"mlp.{name}_proj", out, into, "tp", bias)
        for name, out, into in (("gate", z.f, z.h), ("up", z.f, z.h), ("down", z.h, z.f))
    )
    multiply, multiply_back = forward("mlp", "mul", region="tp"), backward("mlp", "mul", region="tp")
    return Piece(
        forward=(*gate.forward, forward(act, "silu", region="tp"), *up.forward, multiply, *down.forward),
        backward=(
            *down.backward,
            multiply_back,
            multiply_back,
            *up.backward,
            backward(act, "silu_backward", region="tp"),
            *gate.backward,
        ),
        tensors=feed_forward_tensors(z, "addmm" if bias else "mm"),
    )


def feed_forward_tensors(z: Sizes, product: str) -> tuple[Tensor, ...]:
    """What the feed-forward part keeps and passes."""
    wide, stream, multiply = z.value * z.T * z.f, z.value * z.T * z.h, "mlp/mul#0"
    gate, up, down = (f"mlp.{name}_proj/{product}#0" for name in ("gate", "up", "down"))
    silu, silu_back = "mlp.act_fn/silu#0", "mlp.act_fn/silu_backward#0"
    return (
        saved("gate", wide, gate, silu, silu_back, "tp"),
        saved("silu", wide, silu, multiply, "mlp/mul#1", "tp"),
        saved("up", wide, up, multiply, "mlp/mul#1", "tp"),
        saved("product", wide, multiply, down, "mlp.down_proj/mm#1", "tp"),
        passing("down", stream, down, "/add#1", "full", "temporary"),
        passing_back("d product", wide, "mlp.down_proj/mm#0", "mlp/mul#1", "tp"),
        passing_back("d up", wide, "mlp/mul#0", "mlp.up_proj/mm#1", "tp"),
        passing_back("d silu", wide, "mlp/mul#1", silu_back, "tp"),
        passing_back("d gate", wide, silu_back, "mlp.gate_proj/mm#1", "tp"),
        passing_back("d x again", stream, "mlp.gate_proj/mm#0", "mlp.gate_proj/mm#0", "whole"),
    )
