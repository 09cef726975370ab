"""A mixture of experts in the papers' accounting, with as many tokens to every expert.

A router scores E experts in FP32; each of T tokens goes to K of them, so n = T·K routed tokens pass through
experts of e features. Kept are 4·T·E bytes of scores and 4·n of the chosen ones, B·n·h each of the tokens as
the experts get them and as they hand them back (the gradient of the scores needs these), and inside the
experts B·n·e of gate, up and their product. An expert that every token uses is a dense part beside them.

Rows `mlp/dispatch` and `mlp/combine` and their backward are where routed tokens leave the order of the
sequence and return to it: expert parallelism exchanges them there.

Sources: Fedus et al., Switch Transformers, 2021; DeepSeek-AI, DeepSeekMoE, 2024; Megatron-LM's MoE layer.
"""

from playbook.frameworks.parts import (
    Branch,
    Piece,
    backward,
    forward,
    kept_gradient,
    product_backward,
    saved,
)
from playbook.frameworks.textbook_feed_forward import feed_forward
from playbook.program.block import Tensor
from playbook.program.op import Size
from playbook.program.policy import Sizes

ROUTER, EXPERTS, SHARED, GATE = "mlp.gate", "mlp.experts", "mlp.shared_experts", "mlp.shared_expert_gate"
FP32 = 4


def experts(z: Sizes) -> Branch:
    """Router, routed experts, and the shared one where there is one."""
    routed, beside = routed_experts(z), shared_expert(z)
    logits = 2 * z.T * z.h * z.E
    return Branch(
        forward=(forward(ROUTER, "mm", logits), forward("mlp", "topk"), *routed.forward, *beside.forward),
        backward=(
            *beside.backward,
            *routed.backward,
            backward("mlp", "topk_backward"),
            *product_backward(ROUTER, logits, "full"),
        ),
        tensors=(*router_tensors(z), *routed.tensors, *beside.tensors),
        junctions=beside.junctions if isinstance(beside, Branch) else (),
        reads=(last_reader(z), f"{ROUTER}/mm#1"),
        ends="mlp/add#0" if shares(z) else "mlp/combine#0",
    )


def shares(z: Sizes) -> bool:
    """Whether every token uses an expert besides those that it is routed to."""
    return not (isinstance(z.w, int) and z.w == 0)


def last_reader(z: Sizes) -> str:
    """Row of forward that reads the layer's input last."""
    if not shares(z):
        return "mlp/dispatch#0"
    return f"{GATE}/mm#0" if shared_gate(z) else f"{SHARED}.up_proj/mm#0"


def shared_gate(z: Sizes) -> bool:
    """Whether a learned gate scales the shared expert."""
    return z.model.moe is not None and z.model.moe.shared_gate


def router_tensors(z: Sizes) -> list[Tensor]:
    """Scores of all experts, and of those chosen."""
    scores, topk, topk_back = FP32 * z.T * z.E, "mlp/topk#0", "mlp/topk_backward#0"
    return [
        saved("router scores", scores, f"{ROUTER}/mm#0", topk, topk_back, "full"),
        saved("routing weights", FP32 * z.n, topk, "mlp/combine#0", "mlp/combine_backward#0", "routed"),
        kept_gradient(ROUTER, scores, topk_back, f"{ROUTER}/mm#1", "full"),
    ]


def routed_experts(z: Sizes) -> Piece:
    """Dispatch, the experts' products, and the weighted sum of what they hand back."""
    flops = 2 * z.n * z.h * z.e
    into = [f"{EXPERTS}.{name}" for name in (("gate_proj", "up_proj") if z.model.gated else ("up_proj",))]
    down = f"{EXPERTS}.down_proj"
    return Piece(
        forward=(
            forward("mlp", "dispatch", region="routed"),
            *(forward(name, "mm", flops, "expert") for name in into),
            forward(EXPERTS, "act", region="expert"),
            forward(down, "mm", flops, "expert"),
            forward("mlp", "combine", region="routed"),
        ),
        backward=(
            backward("mlp", "combine_backward", region="routed"),
            *product_backward(down, flops, "expert"),
            backward(EXPERTS, "act_backward", region="expert"),
            *(row for name in reversed(into) for row in product_backward(name, flops, "expert")),
            backward("mlp", "dispatch_backward", region="routed"),
        ),
        tensors=(*routed_tensors(z, into), *routed_gradients(z, into)),
    )


def routed_tensors(z: Sizes, into: list[str]) -> list[Tensor]:
    """What the routed experts keep."""
    token, wide = z.value * z.n * z.h, z.value * z.n * z.e
    act, act_back, down = f"{EXPERTS}/act#0", f"{EXPERTS}/act_backward#0", f"{EXPERTS}.down_proj/mm"
    return [
        saved("dispatched", token, "mlp/dispatch#0", f"{into[-1]}/mm#0", f"{into[0]}/mm#1", "routed"),
        *(
            saved(f"expert {name.split('.')[-1][:-5]}", wide, f"{name}/mm#0", act, act_back, "expert")
            for name in into
        ),
        saved("expert activation", wide, act, f"{down}#0", f"{down}#1", "expert"),
        saved("expert output", token, f"{down}#0", "mlp/combine#0", "mlp/combine_backward#0", "routed"),
    ]


def routed_gradients(z: Sizes, into: list[str]) -> list[Tensor]:
    """Gradients of the experts' products, until W takes them."""
    wide, act, down = z.value * z.n * z.e, f"{EXPERTS}/act_backward#0", f"{EXPERTS}.down_proj"
    return [
        *(kept_gradient(name, wide, act, f"{name}/mm#1", "expert") for name in into),
        kept_gradient(down, z.value * z.n * z.h, "mlp/combine_backward#0", f"{down}/mm#1", "routed"),
    ]


def shared_expert(z: Sizes) -> Piece:
    """The part that every token uses, scaled by its gate, and the sum with the routed experts' output."""
    if not shares(z):
        return Piece()
    dense = feed_forward(z, SHARED, z.w)
    gate = gate_of(z) if shared_gate(z) else Piece()
    return Branch(
        forward=(*dense.forward, *gate.forward, forward("mlp", "add")),
        backward=(*gate.backward, *dense.backward),
        tensors=(*dense.tensors, *gate.tensors),
        junctions=dense.junctions,
        reads=dense.reads,
        ends=dense.ends,
    )


def gate_of(z: Sizes) -> Piece:
    """A gate of one output a token, which keeps itself and what it scales."""
    flops: Size = 2 * z.T * z.h
    scale, back = "mlp/mul#0", "mlp/mul_backward#0"
    return Piece(
        forward=(forward(GATE, "mm", flops), forward("mlp", "mul")),
        backward=(backward("mlp", "mul_backward"), *product_backward(GATE, flops, "full")),
        tensors=(
            saved("shared gate value", z.value * z.T, f"{GATE}/mm#0", scale, back, "full"),
            saved("shared output", z.value * z.T * z.h, f"{SHARED}.down_proj/mm#0", scale, back, "full"),
            kept_gradient(GATE, z.value * z.T, back, f"{GATE}/mm#1", "full"),
        ),
    )
