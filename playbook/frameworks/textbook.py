"""The papers' accounting: every recipe with every ZeRO stage, activations as in Korthikanti et al., no
buffers.

State is constant over the step (16 bytes a parameter for the usual mixed precision), activations are what
each product, norm and attention core keeps. One layer of a GPT kind (LayerNorm, GELU, dropout, score matrix
kept) saves s·b·h·(34 + 5·a·s/h) bytes; Llama kinds have grouped queries, a gated feed-forward part and no
dropout. Where backward is split, the inputs of the products and the gradients of their outputs wait for W:
32·s·b·h bytes of a GPT kind's layer (Qi et al., Zero Bubble Pipeline Parallelism, 2023, table 1).

A layer is two branches beside the residual stream, attention and the feed-forward part; norms stand before
them, behind them (OLMo 2) or on both sides (Gemma). A norm keeps its input, and its output belongs to the
products that read it. A branch without a norm before it reads the stream itself.

Sources: Rajbhandari et al., ZeRO, 2020, section 3; Korthikanti et al., Reducing Activation Recomputation in
Large Transformer Models, 2022, sections 4 and 5; Shoeybi et al., Megatron-LM, 2019. FLOPs: 2 a multiply-add;
the attention core counts the whole score matrix, a window the band of it that it leaves, and 2.5 times its
forward in flash attention's backward (Dao, FlashAttention-2, 2023).
"""

from dataclasses import dataclass

from playbook.frameworks.parts import (
    Branch,
    Piece,
    backward,
    block_input,
    forward,
    saved,
    weights,
)
from playbook.frameworks.textbook_attention import CORE_BACK, attention
from playbook.frameworks.textbook_ends import drops, embedding, head
from playbook.frameworks.textbook_experts import experts
from playbook.frameworks.textbook_feed_forward import feed_forward
from playbook.frameworks.textbook_latent import latent_attention
from playbook.program.block import Block, Tensor
from playbook.program.op import END, Op, rows
from playbook.program.policy import Policy, Sizes

AT_THE_CORE = ("q_norm", "k_norm", "sinks")
"""Weights of attention whose gradients are there when the core's backward is over."""


def layer(z: Sizes, layer: int = 0) -> Block:
    """One layer: of its number depends whether it has experts, and its window."""
    attend = (attention if z.model.mla is None else latent_attention)(z, layer)
    feed = experts(z) if z.routed(layer) else feed_forward(z)
    first, second = halves(z, attend, feed)
    return Block(
        name="layer",
        layered=True,
        forward=rows((*first.forward, *second.forward)),
        backward=rows((*second.backward, *first.backward)),
        tensors=(*first.tensors, *second.tensors),
        weights=weights(z.parameters_of(layer), ready(z, layer)),
        junctions=(*attend.junctions, *feed.junctions),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Norms:
    """Owners of the norms before and behind a branch; None where there is none."""

    before: str | None
    behind: str | None


def norms(z: Sizes) -> tuple[Norms, Norms]:
    """Norms around attention and around the feed-forward part."""
    before = None if z.model.post_norm else "input_layernorm"
    if z.model.sandwich or z.model.post_norm:
        feed = "pre_feedforward_layernorm" if z.model.sandwich else None
        return (
            Norms(before=before, behind="post_attention_layernorm"),
            Norms(before=feed, behind="post_feedforward_layernorm"),
        )
    return Norms(before=before, behind=None), Norms(before="post_attention_layernorm", behind=None)


def halves(z: Sizes, attend: Branch, feed: Branch) -> tuple[Piece, Piece]:
    """The two halves of a layer: a branch with its norms and its dropout, and the sum with the stream."""
    around = norms(z)
    stream = z.value * z.T * z.h
    given = (
        block_input(stream, "/add#0", release(attend, around[0])),
        saved("middle", stream, "/add#0", "/add#1", release(feed, around[1]), "full"),
    )
    pairs = zip((attend, feed), around, given, ("", " 2"), (1, 0), strict=True)
    first, second = (
        Piece(
            forward=half_forward(z, branch, norm),
            backward=half_backward(z, branch, norm),
            tensors=(
                enters,
                *half_tensors(z, branch, norm, suffix),
                *branch.tensors,
                *dropout_masks(z, suffix, turn),
            ),
        )
        for branch, norm, enters, suffix, turn in pairs
    )
    return first, second


def release(branch: Branch, norm: Norms) -> str:
    """Row of backward that needs the residual stream before a branch last."""
    return branch.reads[1] if norm.before is None else f"{norm.before}/norm_backward#0"


def half_forward(z: Sizes, branch: Branch, norm: Norms) -> tuple[Op, ...]:
    """Rows of forward: norm, branch, norm, dropout, sum."""
    return (
        *([forward(norm.before, "norm")] if norm.before else ()),
        *branch.forward,
        *([forward(norm.behind, "norm")] if norm.behind else ()),
        *([forward("", "dropout")] if drops(z) else ()),
        forward("", "add"),
    )


def half_backward(z: Sizes, branch: Branch, norm: Norms) -> tuple[Op, ...]:
    """Rows of backward, the other way round."""
    return (
        *([backward("", "dropout_backward")] if drops(z) else ()),
        *([backward(norm.behind, "norm_backward")] if norm.behind else ()),
        *branch.backward,
        *([backward(norm.before, "norm_backward")] if norm.before else ()),
    )


def half_tensors(z: Sizes, branch: Branch, norm: Norms, suffix: str) -> list[Tensor]:
    """Output of the norm before a branch, which its products read, and input of the one behind it."""
    stream, kept = z.value * z.T * z.h, []
    if norm.before:
        made = f"{norm.before}/norm#0"
        kept.append(saved(f"norm output{suffix}", stream, made, *branch.reads, "gathered"))
    if norm.behind:
        used, back = f"{norm.behind}/norm#0", f"{norm.behind}/norm_backward#0"
        kept.append(saved(f"norm input{suffix}", stream, branch.ends, used, back, "full"))
    return kept


def dropout_masks(z: Sizes, suffix: str, turn: int) -> list[Tensor]:
    """The mask of a branch's dropout; backward comes to the second one first."""
    if not drops(z):
        return []
    made, back = f"/dropout#{1 - turn}", f"/dropout_backward#{turn}"
    return [saved(f"dropout mask{suffix}", z.T * z.h, made, made, back, "full")]


def ready(z: Sizes, layer: int = 0) -> dict[str, str]:
    """Row that completes the gradient of each parameter of a layer."""
    found = {}
    for parameter in z.parameters_of(layer):
        owner = parameter.name.removesuffix(".weight").removesuffix(".bias").removesuffix("_bias")
        if owner.endswith("layernorm"):
            found[parameter.name] = f"{owner}/norm_backward#0"
        elif owner.endswith(AT_THE_CORE):
            found[parameter.name] = CORE_BACK
        elif owner == "scalars":
            found[parameter.name] = END
        else:
            found[parameter.name] = f"{owner}/mm#1"
    return found


EXTRAS = frozenset(
    ("adam8bit", "muon", "fp8", "lora", "qlora", "adapters", "chunked loss", "parallel loss", "offloading")
)
"""What this accounting has beyond plain recipes, the eager loss and state on the device."""

POLICY = Policy(
    name="textbook",
    ep_rules=("folded", "independent"),
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
    extras=EXTRAS,
)
