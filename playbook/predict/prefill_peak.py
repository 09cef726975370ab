"""What a step of an inference engine allocates and frees again: tokens of a chunk between two layers."""

import math
from dataclasses import dataclass

from playbook.spec import Layout, Model

SAMPLER_BYTES = 38.5
"""Bytes of a sampled row and vocabulary entry at the sampler's peak: logits in the compute dtype and in FP32,
and what choosing among them sorts. Read off logs of vLLM with 256 rows: 1.26 GiB over 8192 tokens of Llama 3
8B, on one GPU and on two alike (pull 10511); 1.42 GiB over 4096 tokens of Qwen 2.5 7B (issue 13882)."""

EXPERT_CHUNK = 32_768
"""Tokens that vLLM's fused experts take at once (VLLM_FUSED_MOE_CHUNK_SIZE)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instant:
    """One moment of a step: its name, what is alive of it, and the formula."""

    name: str
    term: str
    bytes: int
    formula: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A chunk on a rank: tokens of a step, sampled rows, bytes of a value, tokens of all replicas."""

    tokens: int
    rows: int
    value: int
    gathered: int


def instants(model: Model, layout: Layout, chunk: Chunk) -> tuple[Instant, ...]:
    """Return what is alive in attention, in the feed-forward part, in experts and at the head.

    Notes
    -----
    No gradient is kept, so a tensor goes with its last use. At the widest row of a layer there are the
    layer's input (the caller's), the residual stream and the norm's output, and behind them queries, keys,
    values and the attention's output, or the feed-forward part's products. A log of vLLM bears 3h + 3f bytes
    a value and token out: from 20 000 to 29 000 tokens of Llama 3.1 8B its peak grew by 0.92 GiB
    (vllm-project/vllm issue 10517).
    """
    found = [attention(model, layout, chunk)]
    if model.moe is None or any(not model.moe.in_layer(layer) for layer in range(model.layers)):
        found.append(feed_forward(model, layout, chunk))
    if model.moe is not None:
        found.append(experts(model, layout, chunk))
    return (*found, head(model, chunk))


def attention(model: Model, layout: Layout, chunk: Chunk) -> Instant:
    """Queries, keys and values with the attention's output."""
    tp, mla = layout.tp, model.mla
    heads, kv_heads = model.heads // tp, max(1, model.kv_heads // tp)
    if mla is None:
        width, text = (2 * heads + 2 * kv_heads) * model.head_dim, "2ak/t + 2gk/t"
    else:
        latent = (mla.query_rank or 0) + mla.kv_rank + mla.rope_dim
        width = latent + heads * (2 * model.head_dim + mla.nope_dim + 2 * mla.value_dim)
        text = "rq + rkv + dr + a(3dn + 2dr + 2dv)/t"
    return layer_instant("attention", 3 * model.hidden + width, f"3h + {text}", chunk)


def feed_forward(model: Model, layout: Layout, chunk: Chunk) -> Instant:
    """The products of a dense feed-forward part."""
    products = 3 if model.gated else 2
    width = 3 * model.hidden + products * model.ffn // layout.tp
    return layer_instant("feed-forward", width, f"3h + {products}f/t", chunk)


def layer_instant(name: str, width: int, text: str, chunk: Chunk) -> Instant:
    """Tokens of a chunk times the values of each."""
    return Instant(
        name=f"prefill {name}",
        term="workspace",
        bytes=chunk.tokens * width * chunk.value,
        formula=f"{chunk.tokens} tokens x ({text} = {width}) x {chunk.value} bytes",
    )


def experts(model: Model, layout: Layout, chunk: Chunk) -> Instant:
    """Rows of routed tokens: one buffer for both products' outputs, one for the activation between them."""
    moe = model.moe
    assert moe is not None
    split = layout.etp if layout.ep > 1 or layout.etp > 1 else layout.tp
    routed = max(2 * moe.ffn // split, model.hidden) + moe.ffn // split
    rows = min(chunk.gathered, EXPERT_CHUNK) * moe.active
    shared = model.hidden * bool(moe.shared_ffn)
    width = 3 * model.hidden + shared
    size = chunk.tokens * width * chunk.value + rows * routed * chunk.value
    text = f"{chunk.tokens} tokens x {width} + {rows} routed rows x (max(2e, h) + e = {routed})"
    return Instant(
        name="prefill experts", term="workspace", bytes=size, formula=f"({text}) x {chunk.value} bytes"
    )


def head(model: Model, chunk: Chunk) -> Instant:
    """Logits of the sampled rows with what the sampler makes of them, beside the model's output."""
    stream = chunk.tokens * model.hidden * chunk.value
    size = math.ceil(chunk.rows * model.vocabulary * SAMPLER_BYTES) + stream
    text = (
        f"{chunk.rows} rows x V x {SAMPLER_BYTES:g} bytes + {chunk.tokens} tokens x h x {chunk.value} bytes"
    )
    return Instant(name="head", term="logits", bytes=size, formula=text)


def rotary_bytes(model: Model, value: int) -> int:
    """Sines and cosines of every position that the model is made for, kept for good."""
    if model.positions:
        return 0
    width = model.mla.rope_dim if model.mla else model.head_dim
    return model.max_sequence * width * value
