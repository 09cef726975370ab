"""The reference transformer: plain code for the model that a `spec.Model` describes.

Module names are those of Hugging Face without the leading `model.`, so that one id grammar serves both. Shape
suffixes: B batch, S sequence, D hidden, H heads, G key-value heads, K head dim, F feed-forward, V vocabulary.
"""

import hashlib
from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from playbook.spec import Model

HALF = (torch.bfloat16, torch.float16)


class RMSNorm(nn.Module):
    """Root-mean-square norm, in FP32 where the input is half precision. Shapes: (B, S, D) -> (B, S, D)."""

    def __init__(self, hidden: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))
        self.epsilon = epsilon

    def forward(self, x_BSD: Tensor) -> Tensor:
        """Scale every token to unit root mean square, then by the learned weight."""
        return self.weight * self.normalised(x_BSD)

    def normalised(self, x_BSD: Tensor) -> Tensor:
        """Scale every token to unit root mean square."""
        wide_BSD = x_BSD.float() if x_BSD.dtype in HALF else x_BSD
        scale_BS1 = torch.rsqrt(wide_BSD.pow(2).mean(-1, keepdim=True) + self.epsilon)
        return (wide_BSD * scale_BS1).to(x_BSD.dtype)


class Core(nn.Module):
    """Causal attention of rotated heads, without weights: a module apart, so that it can be checkpointed."""

    def forward(self, q_BHSK: Tensor, k_BGSK: Tensor, v_BGSK: Tensor) -> Tensor:
        """Attend over the whole sequence. Shapes: q (B, H, S, K), k and v (B, G, S, K) -> (B, H, S, K)."""
        grouped = q_BHSK.shape[1] != k_BGSK.shape[1]
        return F.scaled_dot_product_attention(q_BHSK, k_BGSK, v_BGSK, is_causal=True, enable_gqa=grouped)


class Attention(nn.Module):
    """Grouped-query attention with rotary positions. Shapes: x_BSD (B, S, D) -> (B, S, D).

    The number of heads is read off the projections, so a tensor-parallel shard of them works unchanged.
    """

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.head_dim = model.head_dim
        query, key = model.heads * model.head_dim, model.kv_heads * model.head_dim
        self.q_proj = nn.Linear(model.hidden, query, bias=model.qkv_bias)
        self.k_proj = nn.Linear(model.hidden, key, bias=model.qkv_bias)
        self.v_proj = nn.Linear(model.hidden, key, bias=model.qkv_bias)
        self.o_proj = nn.Linear(query, model.hidden, bias=model.output_bias)
        self.q_norm = RMSNorm(model.head_dim, model.norm_epsilon) if model.qk_norm else nn.Identity()
        self.k_norm = RMSNorm(model.head_dim, model.norm_epsilon) if model.qk_norm else nn.Identity()
        self.core = Core()

    def forward(self, x_BSD: Tensor, rotary: tuple[Tensor, Tensor]) -> Tensor:
        """Causal attention over the whole sequence."""
        B, S, _ = x_BSD.shape
        q_BHSK = self.q_norm(self.q_proj(x_BSD).view(B, S, -1, self.head_dim)).transpose(1, 2)
        k_BGSK = self.k_norm(self.k_proj(x_BSD).view(B, S, -1, self.head_dim)).transpose(1, 2)
        v_BGSK = self.v_proj(x_BSD).view(B, S, -1, self.head_dim).transpose(1, 2)
        q_BHSK, k_BGSK = rotate(q_BHSK, rotary), rotate(k_BGSK, rotary)
        o_BHSK = self.core(q_BHSK, k_BGSK, v_BGSK)
        return self.o_proj(o_BHSK.transpose(1, 2).reshape(B, S, -1))


class MLP(nn.Module):
    """SwiGLU feed-forward. Shapes: x_BSD (B, S, D) -> (B, S, D)."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(model.hidden, model.ffn, bias=model.mlp_bias)
        self.up_proj = nn.Linear(model.hidden, model.ffn, bias=model.mlp_bias)
        self.down_proj = nn.Linear(model.ffn, model.hidden, bias=model.mlp_bias)

    def forward(self, x_BSD: Tensor) -> Tensor:
        """Gate, up and down projections with a SiLU between."""
        return self.down_proj(F.silu(self.gate_proj(x_BSD)) * self.up_proj(x_BSD))


class Block(nn.Module):
    """One pre-norm layer. Shapes: x_BSD (B, S, D) -> (B, S, D)."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(model.hidden, model.norm_epsilon)
        self.self_attn = Attention(model)
        self.post_attention_layernorm = RMSNorm(model.hidden, model.norm_epsilon)
        self.mlp = MLP(model)

    def forward(self, x_BSD: Tensor, rotary: tuple[Tensor, Tensor]) -> Tensor:
        """Attention and feed-forward, each added to the residual stream."""
        x_BSD = x_BSD + self.self_attn(self.input_layernorm(x_BSD), rotary)
        return x_BSD + self.mlp(self.post_attention_layernorm(x_BSD))


class Transformer(nn.Module):
    """The reference model, whole or the part that one pipeline stage holds.

    Parameters
    ----------
    model
        Sizes; families with rotary positions, RMS norm and gated feed-forward.
    layers
        Global numbers of the layers held here; all by default. The stage that holds layer 0 embeds, the one
        that holds the last layer has the final norm and the head.

    Raises
    ------
    ValueError
        If the model is of a kind that this code does not compute (learned positions, LayerNorm, plain MLP).
    """

    input_shares: int = 1
    """Ranks that share the input's sequence: those of sequence parallelism, for a stage of hidden states."""
    embed_tokens: Any
    layers: Any
    norm: Any
    lm_head: Any

    def __init__(self, model: Model, layers: Iterable[int] | None = None) -> None:
        super().__init__()
        refuse_other_kinds(model)
        held = list(range(model.layers)) if layers is None else list(layers)
        self.spec = model
        self.embed_tokens = nn.Embedding(model.vocabulary, model.hidden) if 0 in held else None
        self.layers = nn.ModuleDict({str(index): Block(model) for index in held})
        last = model.layers - 1 in held
        self.norm = RMSNorm(model.hidden, model.norm_epsilon) if last else None
        self.lm_head = nn.Linear(model.hidden, model.vocabulary, bias=False) if last else None
        if model.tied and self.lm_head is not None and self.embed_tokens is not None:
            self.lm_head.weight = self.embed_tokens.weight

    def forward(self, x: Tensor) -> Tensor:
        """Tokens (B, S) or hidden states (B, S, D) in; hidden states or logits (B, S, V) out."""
        x_BSD = x if self.embed_tokens is None else self.embed_tokens(x)
        # From the input's length: under sequence parallelism the embedding hands on a share of the sequence.
        rotary = rotary_tables(x.shape[1] * self.input_shares, x_BSD, self.spec)
        for layer in self.layers.values():
            x_BSD = layer(x_BSD, rotary)
        if self.norm is None or self.lm_head is None:
            return x_BSD
        return self.lm_head(self.norm(x_BSD))


def rotary_tables(sequence: int, like: Tensor, model: Model) -> tuple[Tensor, Tensor]:
    """Cosines and sines of every position, each of shape (S, K), in the dtype and on the device of `like`."""
    half = torch.arange(0, model.head_dim, 2, device=like.device, dtype=torch.float64)
    frequency_K = model.rope_theta ** -(half / model.head_dim)
    position_S = torch.arange(sequence, device=like.device, dtype=torch.float64)
    angle_SK = torch.cat([torch.outer(position_S, frequency_K)] * 2, dim=-1)
    return angle_SK.cos().to(like.dtype), angle_SK.sin().to(like.dtype)


def rotate(x_BHSK: Tensor, rotary: tuple[Tensor, Tensor]) -> Tensor:
    """Rotary position embedding (Su et al., RoFormer, 2021), halves paired as in Llama."""
    cos_SK, sin_SK = rotary
    low, high = x_BHSK.chunk(2, dim=-1)
    return x_BHSK * cos_SK + torch.cat((-high, low), dim=-1) * sin_SK


def loss_of(logits_BSV: Tensor, labels_BS: Tensor) -> Tensor:
    """Mean cross entropy over all tokens, in FP32 when the logits are half precision."""
    logits_BSV = logits_BSV.float() if logits_BSV.dtype in HALF else logits_BSV
    return F.cross_entropy(logits_BSV.flatten(0, 1), labels_BS.flatten())


@torch.no_grad()
def seed_weights(module: nn.Module, seed: int) -> None:
    """Fill every parameter from a generator seeded by its own name.

    A stage or a rank that holds part of the model so gets the values that the whole model has.
    """
    for name, parameter in module.named_parameters():
        if name.endswith("norm.weight"):
            parameter.fill_(1.0)
            continue
        digest = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=7).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest, "big"))
        values = torch.randn(parameter.shape, generator=generator, dtype=torch.float32) * 0.02
        parameter.copy_(values.to(parameter.dtype))


def refuse_other_kinds(model: Model) -> None:
    """Raise ValueError, naming what this code does not compute, unless `model` is of a kind it does."""
    if model.unlike_llama:
        raise ValueError(
            f"model {model.name!r} has {', '.join(model.unlike_llama)}: the reference transformer computes "
            "RMS norm, rotary positions and a gated MLP; use a dense kind of Llama or Qwen, such as toy-15m"
        )
