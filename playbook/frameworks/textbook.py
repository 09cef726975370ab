"""The papers' accounting: every recipe with every ZeRO stage, activations as in Korthikanti et al., no
buffers.

State is constant over the step (16 bytes a parameter for the usual mixed precision), activations are what
each product, norm and attention core keeps. One layer of a GPT kind (LayerNorm, GELU, dropout, score matrix
kept) saves s·b·h·(34 + 5·a·s/h) bytes; Llama kinds have grouped queries, a gated feed-forward part and no
dropout. Where backward is split, the inputs of the products and the gradients of their outputs wait for W:
32·s·b·h bytes of a GPT kind's layer (Qi et al., Zero Bubble Pipeline Parallelism, 2023, table 1).

Sources: Rajbhandari et al., ZeRO, 2020, section 3; Korthikanti et al., Reducing Activation Recomputation in
Large Transformer Models, 2022, sections 4 and 5; Shoeybi et al., Megatron-LM, 2019. FLOPs: 2 a multiply-add;
the attention core counts the whole score matrix, and 2.5 times its forward in flash attention's backward
(Dao, FlashAttention-2, 2023).
"""

from dataclasses import replace

from playbook.frameworks.parts import (
    backward,
    block_input,
    forward,
    kept_gradient,
    product_backward,
    saved,
    weights,
)
from playbook.frameworks.textbook_ends import drops, embedding, head
from playbook.program.block import Block, Junction, Tensor
from playbook.program.op import At, Op, Region, Size, rows
from playbook.program.policy import Policy, Sizes
from playbook.program.polynomial import scaled

ATTENTION = ("q_proj", "k_proj", "v_proj")


def layer(z: Sizes) -> Block:
    """One layer."""
    return Block(
        name="layer",
        layered=True,
        forward=rows(layer_forward(z)),
        backward=rows(layer_backward(z)),
        tensors=(*attention_tensors(z), *feed_forward_tensors(z), *output_gradients(z)),
        weights=weights(z.layer_parameters, ready(z)),
        junctions=(attention_junction(z), feed_forward_junction(z)),
    )


def products(z: Sizes) -> dict[str, tuple[Size, Region]]:
    """FLOPs of each product's forward, with its region."""
    query, key = 2 * z.T * z.h * z.a * z.k, 2 * z.T * z.h * z.g * z.k
    feed = 2 * z.T * z.h * z.f
    found: dict[str, tuple[Size, Region]] = {
        "self_attn.q_proj": (query, "tp"),
        "self_attn.k_proj": (key, "kv"),
        "self_attn.v_proj": (key, "kv"),
        "self_attn.o_proj": (query, "tp"),
        "mlp.gate_proj": (feed, "tp"),
        "mlp.up_proj": (feed, "tp"),
        "mlp.down_proj": (feed, "tp"),
    }
    if not z.model.gated:
        found.pop("mlp.gate_proj")
    return found


def attention_flops(z: Sizes) -> Size:
    """FLOPs of the attention core's forward: two products of the whole score matrix."""
    return 4 * z.b * z.s * z.s * z.a * z.k


def layer_forward(z: Sizes) -> list[Op]:
    """Rows of forward, in order."""
    product = {name: forward(name, "mm", *facts) for name, facts in products(z).items()}
    dropout = [forward("", "dropout")] if drops(z) else []
    gate = [product["mlp.gate_proj"]] if z.model.gated else []
    return [
        forward("input_layernorm", "norm"),
        *(product[f"self_attn.{name}"] for name in ATTENTION),
        forward("self_attn", "sdpa", attention_flops(z), "tp", "core"),
        product["self_attn.o_proj"],
        *dropout,
        forward("", "add"),
        forward("post_attention_layernorm", "norm"),
        *gate,
        product["mlp.up_proj"],
        forward("mlp", "act"),
        product["mlp.down_proj"],
        *dropout,
        forward("", "add"),
    ]


def layer_backward(z: Sizes) -> list[Op]:
    """Rows of backward: each product once for its input and once for its weight."""
    product = {name: product_backward(name, *facts) for name, facts in products(z).items()}
    dropout = [backward("", "dropout_backward")] if drops(z) else []
    gate = product["mlp.gate_proj"] if z.model.gated else ()
    core = attention_flops(z)
    core = scaled(core, 5, 2) if z.attention == "flash" else core * 2
    return [
        *dropout,
        *product["mlp.down_proj"],
        backward("mlp", "act_backward"),
        *product["mlp.up_proj"],
        *gate,
        backward("post_attention_layernorm", "norm_backward"),
        *dropout,
        *product["self_attn.o_proj"],
        backward("self_attn", "sdpa_backward", core, "tp", "core"),
        *(row for name in reversed(ATTENTION) for row in product[f"self_attn.{name}"]),
        backward("input_layernorm", "norm_backward"),
    ]


def attention_tensors(z: Sizes) -> list[Tensor]:
    """What attention keeps, and the norm before it."""
    stream, core = z.value * z.T * z.h, "self_attn/sdpa#0"
    query, key = z.value * z.T * z.a * z.k, z.value * z.T * z.g * z.k
    core_back, product = "self_attn/sdpa_backward#0", "self_attn.o_proj/mm#0"
    for_o = At("B", "self_attn.o_proj/mm#1")
    kept = [
        block_input(stream, "/add#0", "input_layernorm/norm_backward#0"),
        saved(
            "norm output",
            stream,
            "input_layernorm/norm#0",
            "self_attn.v_proj/mm#0",
            "self_attn.q_proj/mm#1",
            "gathered",
        ),
        saved("q", query, "self_attn.q_proj/mm#0", core, core_back, "tp"),
        saved("k", key, "self_attn.k_proj/mm#0", core, core_back, "kv"),
        saved("v", key, "self_attn.v_proj/mm#0", core, core_back, "kv"),
        *core_tensors(z),
        replace(saved("attention output", query, core, product, core_back, "tp"), weight_end=for_o),
    ]
    if drops(z):
        kept.append(
            saved("dropout mask", z.T * z.h, "/dropout#0", "/dropout#0", "/dropout_backward#1", "full")
        )
    return kept


def core_tensors(z: Sizes) -> list[Tensor]:
    """What the attention core keeps: log-sum-exps, or the scores with their dropout."""
    core, core_back = "self_attn/sdpa#0", "self_attn/sdpa_backward#0"
    if z.attention == "flash":
        return [saved("log-sum-exp", 4 * z.T * z.a, core, core, core_back, "tp")]
    scores = z.a * z.s * z.s * z.b
    kept = [saved("scores", z.value * scores, core, core, core_back, "tp", "core")]
    if drops(z):
        kept.append(saved("score mask", scores, core, core, core_back, "tp", "core"))
        kept.append(saved("dropped scores", z.value * scores, core, core, core_back, "tp", "core"))
    return kept


def feed_forward_tensors(z: Sizes) -> list[Tensor]:
    """What the feed-forward part keeps, and the norm before it."""
    stream, wide = z.value * z.T * z.h, z.value * z.T * z.f
    up, act, act_back = "mlp.up_proj/mm#0", "mlp/act#0", "mlp/act_backward#0"
    first = "mlp.gate_proj/mm#1" if z.model.gated else "mlp.up_proj/mm#1"
    kept = [
        saved("middle", stream, "/add#0", "/add#1", "post_attention_layernorm/norm_backward#0", "full"),
        saved("norm output 2", stream, "post_attention_layernorm/norm#0", up, first, "gathered"),
        saved("up", wide, up, act, act_back, "tp"),
        saved("activation", wide, act, "mlp.down_proj/mm#0", "mlp.down_proj/mm#1", "tp"),
    ]
    if z.model.gated:
        kept.append(saved("gate", wide, "mlp.gate_proj/mm#0", act, act_back, "tp"))
    if drops(z):
        kept.append(
            saved("dropout mask 2", z.T * z.h, "/dropout#1", "/dropout#1", "/dropout_backward#0", "full")
        )
    return kept


def output_gradients(z: Sizes) -> list[Tensor]:
    """Gradients of the products' outputs, from the row that makes or takes them to W."""
    stream, core, act = z.value * z.T * z.h, "self_attn/sdpa_backward#0", "mlp/act_backward#0"
    query, key, wide = z.value * z.T * z.a * z.k, z.value * z.T * z.g * z.k, z.value * z.T * z.f
    facts: list[tuple[str, Size, str, Region]] = [
        ("self_attn.q_proj", query, core, "tp"),
        ("self_attn.k_proj", key, core, "kv"),
        ("self_attn.v_proj", key, core, "kv"),
        ("self_attn.o_proj", stream, "self_attn.o_proj/mm#0", "whole"),
        ("mlp.gate_proj", wide, act, "tp"),
        ("mlp.up_proj", wide, act, "tp"),
        ("mlp.down_proj", stream, "mlp.down_proj/mm#0", "whole"),
    ]
    return [
        kept_gradient(name, size, birth, f"{name}/mm#1", region)
        for name, size, birth, region in facts
        if z.model.gated or name != "mlp.gate_proj"
    ]


def ready(z: Sizes) -> dict[str, str]:
    """Row that completes the gradient of each parameter of a layer."""
    rows_of = {}
    for parameter in z.layer_parameters:
        owner = parameter.name.rpartition(".")[0]
        if owner.endswith("layernorm"):
            rows_of[parameter.name] = f"{owner}/norm_backward#0"
        elif owner.endswith(("q_norm", "k_norm")):
            rows_of[parameter.name] = "self_attn/sdpa_backward#0"
        else:
            rows_of[parameter.name] = f"{owner}/mm#1"
    return rows_of


def attention_junction(z: Sizes) -> Junction:
    """Attention as a tensor-parallel part: split by heads."""
    return Junction(
        enter="",
        leave="",
        input_rows=("self_attn.q_proj/mm#0", "self_attn.q_proj/mm#1"),
        output_rows=("self_attn.o_proj/mm#0", "self_attn.o_proj/mm#0"),
        again="self_attn.v_proj/mm#0",
        bytes=z.value * z.T * z.h,
    )


def feed_forward_junction(z: Sizes) -> Junction:
    """The feed-forward part as a tensor-parallel part: split by its features."""
    first, last = ("gate_proj", "gate_proj") if z.model.gated else ("up_proj", "up_proj")
    return Junction(
        enter="",
        leave="",
        input_rows=(f"mlp.{first}/mm#0", f"mlp.{last}/mm#1"),
        output_rows=("mlp.down_proj/mm#0", "mlp.down_proj/mm#0"),
        again="mlp.up_proj/mm#0",
        bytes=z.value * z.T * z.h,
    )


POLICY = Policy(
    name="textbook",
    embedding=embedding,
    layer=layer,
    head=head,
    buffers=False,
    gradients_resident=True,
    stops_early=False,
    saves_gathered=False,
    vocabulary_parallel=True,
    pads_rows=False,
    keeps_boundaries=False,
    reserved_share=(0.0, 0.0),
)
