"""Latent attention (DeepSeek-V2) in the papers' accounting.

Queries, keys and values are made from small latent vectors by products that tensor parallelism splits by
heads; the products that squeeze into the latents are whole on every rank. Kept are the latents and the
rotary key, and per head query and key (nope + rope features each) and value: B·T·(rq + rkv + dr +
a·(2·(dn + dr) + dv)) bytes. Norms of latents keep nothing more, as those of queries and keys.

Source: DeepSeek-AI, DeepSeek-V2, 2024, section 2.1; whole squeezing products as in Megatron-LM's and Hugging
Face's code.
"""

from playbook.frameworks.parts import Branch, backward, forward, kept_gradient, product_backward, saved
from playbook.frameworks.textbook_attention import (
    CORE,
    CORE_BACK,
    OUTPUT,
    Products,
    core_backward,
    core_forward,
    core_tensors,
    output_tensors,
)
from playbook.program.block import Junction, Tensor
from playbook.program.op import Op
from playbook.program.policy import Sizes

SQUEEZE_Q, EXPAND_Q, WHOLE_Q = (f"self_attn.{name}_proj" for name in ("q_a", "q_b", "q"))
SQUEEZE, EXPAND = "self_attn.kv_a_proj_with_mqa", "self_attn.kv_b_proj"


def latent_attention(z: Sizes, layer: int = 0) -> Branch:
    """Attention whose keys and values come from one latent vector."""
    products = projections(z)
    first = SQUEEZE_Q if squeezes(z) else WHOLE_Q
    return Branch(
        forward=(*products_forward(z, products), *core_forward(z, layer)),
        backward=(*core_backward(z, layer), *products_backward(z, products)),
        tensors=(
            *latents(z),
            *heads(z),
            *core_tensors(z),
            *output_tensors(z, z.a * z.dv),
            *output_gradients(z),
        ),
        junctions=junctions(z),
        reads=(f"{SQUEEZE}/mm#0", f"{first}/mm#1"),
        ends=f"{OUTPUT}/mm#0",
    )


def squeezes(z: Sizes) -> bool:
    """Whether queries come from a latent vector too."""
    return not (isinstance(z.rq, int) and z.rq == 0)


def projections(z: Sizes) -> Products:
    """The products before the core."""
    query = z.a * (z.dn + z.dr)
    queries: Products = {WHOLE_Q: (2 * z.T * z.h * query, "tp")}
    if squeezes(z):
        queries = {SQUEEZE_Q: (2 * z.T * z.h * z.rq, "full"), EXPAND_Q: (2 * z.T * z.rq * query, "tp")}
    return {
        **queries,
        SQUEEZE: (2 * z.T * z.h * (z.rkv + z.dr), "full"),
        EXPAND: (2 * z.T * z.rkv * z.a * (z.dn + z.dv), "tp"),
    }


def norm_behind(name: str) -> str | None:
    """The norm on what a product squeezes."""
    return {SQUEEZE_Q: "self_attn.q_a_layernorm", SQUEEZE: "self_attn.kv_a_layernorm"}.get(name)


def products_forward(z: Sizes, products: Products) -> list[Op]:
    """Squeeze, norm, expand: queries first."""
    found = []
    for name, facts in products.items():
        found.append(forward(name, "mm", *facts))
        norm = norm_behind(name)
        if norm:
            found.append(forward(norm, "norm"))
    return found


def products_backward(z: Sizes, products: Products) -> list[Op]:
    """Backward of the products and of the norms between them."""
    found: list[Op] = []
    for name, facts in reversed(products.items()):
        norm = norm_behind(name)
        if norm:
            found.append(backward(norm, "norm_backward"))
        found += product_backward(name, *facts)
    return found


def latents(z: Sizes) -> list[Tensor]:
    """The latent vectors, and the rotary key, one for all heads."""
    token = z.value * z.T
    kept = [
        saved(
            "latent",
            token * z.rkv,
            "self_attn.kv_a_layernorm/norm#0",
            f"{EXPAND}/mm#0",
            f"{EXPAND}/mm#1",
            "gathered",
        ),
        saved("rotary key", token * z.dr, f"{SQUEEZE}/mm#0", CORE, CORE_BACK, "gathered"),
    ]
    if squeezes(z):
        norm = "self_attn.q_a_layernorm/norm#0"
        kept.append(
            saved("query latent", token * z.rq, norm, f"{EXPAND_Q}/mm#0", f"{EXPAND_Q}/mm#1", "gathered")
        )
    return kept


def heads(z: Sizes) -> list[Tensor]:
    """Queries, keys and values as the core reads them."""
    head, value = z.value * z.T * z.a * (z.dn + z.dr), z.value * z.T * z.a * z.dv
    maker = EXPAND_Q if squeezes(z) else WHOLE_Q
    return [
        saved("q", head, f"{maker}/mm#0", CORE, CORE_BACK, "tp"),
        saved("k", head, f"{EXPAND}/mm#0", CORE, CORE_BACK, "tp"),
        saved("v", value, f"{EXPAND}/mm#0", CORE, CORE_BACK, "tp"),
    ]


def output_gradients(z: Sizes) -> list[Tensor]:
    """Gradients of the products' outputs, until W takes them."""
    token, query = z.value * z.T, z.a * (z.dn + z.dr)
    key_norm, query_norm = (f"self_attn.{name}_a_layernorm/norm_backward#0" for name in ("kv", "q"))
    maker = EXPAND_Q if squeezes(z) else WHOLE_Q
    kept = [
        kept_gradient(maker, token * query, CORE_BACK, f"{maker}/mm#1", "tp"),
        kept_gradient(EXPAND, token * z.a * (z.dn + z.dv), CORE_BACK, f"{EXPAND}/mm#1", "tp"),
        kept_gradient(SQUEEZE, token * (z.rkv + z.dr), key_norm, f"{SQUEEZE}/mm#1", "full"),
    ]
    if squeezes(z):
        kept.append(kept_gradient(SQUEEZE_Q, token * z.rq, query_norm, f"{SQUEEZE_Q}/mm#1", "full"))
    return kept


def junctions(z: Sizes) -> tuple[Junction, ...]:
    """Tensor-parallel parts: from the latents to the heads, and out of the output product.

    The gradient of the rotary key, which every head adds to, travels with that of the latent.
    """
    maker = EXPAND_Q if squeezes(z) else WHOLE_Q
    width = z.rq if squeezes(z) else z.h
    return (
        Junction(
            enter="",
            input_rows=(f"{maker}/mm#0", f"{maker}/mm#1"),
            again=f"{maker}/mm#0",
            bytes=z.value * z.T * width,
        ),
        Junction(
            enter="",
            input_rows=(f"{EXPAND}/mm#0", f"{EXPAND}/mm#1"),
            again=f"{EXPAND}/mm#0",
            bytes=z.value * z.T * (z.rkv + z.dr),
        ),
        Junction(leave="", output_rows=(f"{OUTPUT}/mm#0", f"{OUTPUT}/mm#0"), bytes=z.value * z.T * z.h),
    )
