"""Weights of a decoder, tensor by tensor, from its sizes: numbers, or symbols in their place.

The names are those of Hugging Face's classes, with three rules that make one layer mean one thing: fused
projections (GPT-2's `c_attn`, Phi-3's `qkv_proj` and `gate_up_proj`) are listed one by one, shapes are (out,
in), and the routed experts of a layer are one tensor for each projection, dim 0 the expert.

Sources: the modelling files of Hugging Face transformers 5 for each family.
"""

import math
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Parameter:
    """One weight tensor.

    Parameters
    ----------
    name, shape
        Its name, and its whole shape.
    tp_dim
        The dim that tensor parallelism splits; None: copied.
    expert
        Whether it belongs to the routed experts; dim 0 is then the expert.
    """

    name: str
    shape: tuple[int, ...]
    tp_dim: int | None
    expert: bool = False

    @property
    def numel(self) -> int:
        """Elements of the whole tensor."""
        return math.prod(self.shape)


Weights = tuple[Parameter, ...]


def linear(name: str, out: int, into: int, tp_dim: int | None, bias: bool) -> Weights:
    """Weights of a linear layer; its bias is split only where the output features are."""
    weight = Parameter(f"{name}.weight", (out, into), tp_dim)
    if not bias:
        return (weight,)
    return weight, Parameter(f"{name}.bias", (out,), 0 if tp_dim == 0 else None)


def norm(model: Any, name: str, width: int | None = None) -> Weights:
    """Weights of a norm over the hidden features, or over `width` of them."""
    size = (model.hidden if width is None else width,)
    weight, bias = Parameter(f"{name}.weight", size, None), Parameter(f"{name}.bias", size, None)
    return {"rms": (weight,), "layer": (weight, bias), "plain": ()}[model.norm]


def layer(model: Any, number: int) -> Weights:
    """Weights of one layer in module order, names relative to the layer.

    Parameters
    ----------
    model
        A `Model`, or a stand-in with its attributes.
    number
        Number of the layer.
    """
    before = () if model.post_norm else norm(model, "input_layernorm")
    attention = latent_attention(model) if model.mla is not None else heads_attention(model)
    routed = model.moe is not None and model.moe.in_layer(number)
    feed = (
        (*routed_experts(model), *shared_experts(model)) if routed else feed_forward(model, "mlp", model.ffn)
    )
    own = (Parameter("scalars", (model.scalars,), None),) if model.scalars else ()
    return (*before, *attention, *norm(model, "post_attention_layernorm"), *feed_norms(model), *feed, *own)


def feed_norms(model: Any) -> Weights:
    """Further norms around the feed-forward part: Gemma has two, OLMo 2 one behind."""
    before = norm(model, "pre_feedforward_layernorm") if model.sandwich else ()
    behind = norm(model, "post_feedforward_layernorm") if model.sandwich or model.post_norm else ()
    return (*before, *behind)


def heads_attention(model: Any) -> Weights:
    """Attention with a projection each for queries, keys and values."""
    query, key = model.heads * model.head_dim, model.kv_heads * model.head_dim
    return (
        *linear("self_attn.q_proj", query, model.hidden, 0, model.qkv_bias),
        *linear("self_attn.k_proj", key, model.hidden, 0, model.qkv_bias),
        *linear("self_attn.v_proj", key, model.hidden, 0, model.qkv_bias),
        *linear("self_attn.o_proj", model.hidden, query, 1, model.output_bias),
        *head_norms(model, query, key),
        *((Parameter("self_attn.sinks", (model.heads,), 0),) if model.sinks else ()),
    )


def head_norms(model: Any, query: int, key: int) -> Weights:
    """Norms on queries and keys: over each head (one weight for all heads), or over all heads together."""
    if not model.qk_norm:
        return ()
    widths = (query, key) if model.qk_norm == "full" else (model.head_dim, model.head_dim)
    return tuple(
        Parameter(f"self_attn.{name}_norm.weight", (width,), None)
        for name, width in zip("qk", widths, strict=True)
    )


def latent_attention(model: Any) -> Weights:
    """Attention whose keys and values come from one latent vector; the squeezing projections are copied."""
    mla, heads, hidden = model.mla, model.heads, model.hidden
    query = heads * (mla.nope_dim + mla.rope_dim)
    if mla.query_rank is None:
        queries = linear("self_attn.q_proj", query, hidden, 0, bias=False)
    else:
        queries = (
            *linear("self_attn.q_a_proj", mla.query_rank, hidden, None, model.qkv_bias),
            Parameter("self_attn.q_a_layernorm.weight", (mla.query_rank,), None),
            *linear("self_attn.q_b_proj", query, mla.query_rank, 0, bias=False),
        )
    latent, back = mla.kv_rank + mla.rope_dim, heads * (mla.nope_dim + mla.value_dim)
    return (
        *queries,
        *linear("self_attn.kv_a_proj_with_mqa", latent, hidden, None, model.qkv_bias),
        Parameter("self_attn.kv_a_layernorm.weight", (mla.kv_rank,), None),
        *linear("self_attn.kv_b_proj", back, mla.kv_rank, 0, bias=False),
        *linear("self_attn.o_proj", hidden, heads * mla.value_dim, 1, model.output_bias),
    )


def feed_forward(model: Any, name: str, width: int) -> Weights:
    """A dense feed-forward part."""
    gate = linear(f"{name}.gate_proj", width, model.hidden, 0, model.mlp_bias) if model.gated else ()
    return (
        *gate,
        *linear(f"{name}.up_proj", width, model.hidden, 0, model.mlp_bias),
        *linear(f"{name}.down_proj", model.hidden, width, 1, model.mlp_bias),
    )


def routed_experts(model: Any) -> Weights:
    """The router, and the routed experts as one tensor for each projection."""
    moe, hidden = model.moe, model.hidden
    router = linear("mlp.gate", moe.experts, hidden, None, moe.router_bias)
    names = ("gate_proj", "up_proj", "down_proj") if model.gated else ("up_proj", "down_proj")
    found = []
    for name in names:
        down = name == "down_proj"
        out, into = (hidden, moe.ffn) if down else (moe.ffn, hidden)
        full = f"mlp.experts.{name}"
        found.append(Parameter(full, (moe.experts, out, into), 2 if down else 1, expert=True))
        if moe.expert_bias:
            bias = Parameter(f"{full}_bias", (moe.experts, out), None if down else 1, expert=True)
            found.append(bias)
    return (*router, *found)


def shared_experts(model: Any) -> Weights:
    """The experts that every token uses, as one feed-forward part, and their gate."""
    moe = model.moe
    if not moe.shared_ffn:
        return ()
    gate = linear("mlp.shared_expert_gate", 1, model.hidden, None, bias=False) if moe.shared_gate else ()
    return (*feed_forward(model, "mlp.shared_experts", moe.shared_ffn), *gate)


def embedding(model: Any) -> Weights:
    """Weights before the first layer: the token table, and learned positions if there are any."""
    table = Parameter("embed_tokens.weight", (model.vocabulary, model.hidden), 0)
    if not model.positions:
        return (table,)
    return table, Parameter("embed_positions.weight", (model.positions, model.hidden), None)


def head(model: Any) -> Weights:
    """Weights after the last layer: the final norm, and the head unless it uses the embedding table."""
    own = () if model.tied else linear("lm_head", model.vocabulary, model.hidden, 0, bias=False)
    return (*norm(model, "norm"), *own)


def multi_token(model: Any) -> Weights:
    """Weights of one multi-token module besides the token table and the head, which it shares.

    Two norms, a projection of twice the features to the features, one layer of the last kind, and a norm
    before the head. Source: DeepSeek-V3 technical report (2024), section 2.2, and its README_WEIGHTS file.
    """
    return (
        *norm(model, "enorm"),
        *norm(model, "hnorm"),
        *linear("eh_proj", model.hidden, 2 * model.hidden, None, bias=False),
        *layer(model, model.layers - 1),
        *norm(model, "shared_head.norm"),
    )
