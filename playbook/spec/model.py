"""A decoder-only transformer, described by its sizes: parameters are counted tensor by tensor."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from playbook.spec import presets
from playbook.spec.config import read_config
from playbook.spec.rules import choice, divisors, flag, positive, settle, text, whole

FAMILIES = ("llama", "qwen2", "qwen3", "mistral", "gpt2")
SIZES = ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocabulary", "max_sequence")
FLAGS = ("gated", "tied", "qkv_bias", "output_bias", "mlp_bias", "qk_norm")


@dataclass(frozen=True, slots=True)
class Parameter:
    """One weight tensor: its name, whole shape, and the dim that tensor parallelism splits (None: copied)."""

    name: str
    shape: tuple[int, ...]
    tp_dim: int | None

    @property
    def numel(self) -> int:
        """Elements of the whole tensor."""
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """Sizes of a decoder-only transformer.

    Parameters
    ----------
    name, family
        What to call it, and the kind of architecture: one of `FAMILIES`.
    layers, hidden, heads, kv_heads, head_dim, ffn, vocabulary
        Numbers of layers, of features, of query and key-value heads, of features a head, of feed-forward
        features and of tokens in the vocabulary.
    gated
        Whether the feed-forward part has a gate projection (SwiGLU).
    norm
        "rms" (one weight) or "layer" (weight and bias).
    tied
        Whether the head uses the embedding table.
    qkv_bias, output_bias, mlp_bias, qk_norm
        Biases of the projections; norms on queries and keys.
    positions
        Learned positions; 0 means rotary ones.
    window
        Tokens that a token attends to, in every layer; None is all.
    max_sequence
        Longest sequence that the model is made for, in tokens.
    norm_epsilon, rope_theta
        Constants of the norms and of the rotary positions.
    ignored_keys
        Keys of the configuration file that were not understood and have no part in any number here.
    source
        Where the sizes come from.
    """

    name: str
    family: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocabulary: int
    max_sequence: int
    gated: bool = True
    norm: str = "rms"
    tied: bool = False
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    positions: int = 0
    window: int | None = None
    norm_epsilon: float = 1e-6
    rope_theta: float = 10_000.0
    ignored_keys: tuple[str, ...] = ()
    source: str = "given as numbers"

    def __post_init__(self) -> None:
        settle(self, name=text("name", self.name), family=choice("family", self.family, FAMILIES))
        settle(self, norm=choice("norm", self.norm, ("rms", "layer")), source=text("source", self.source))
        for name in SIZES:
            settle(self, **{name: whole(name, getattr(self, name))})
        for name in FLAGS:
            flag(name, getattr(self, name))
        settle(self, positions=whole("positions", self.positions, least=0))
        if self.window is not None:
            settle(self, window=whole("window", self.window))
        for name in ("norm_epsilon", "rope_theta"):
            settle(self, **{name: positive(name, getattr(self, name))})
        settle(self, ignored_keys=tuple(self.ignored_keys))
        if self.heads % self.kv_heads:
            raise ValueError(
                f"kv_heads={self.kv_heads} does not divide heads={self.heads}; "
                f"use one of {', '.join(map(str, divisors(self.heads)))}"
            )

    @classmethod
    def from_config(cls, config: "Mapping[str, Any] | str | Path", name: str | None = None) -> "Model":
        """Read a Hugging Face `config.json`, given as its path, its folder or its dict.

        Raises
        ------
        ValueError
            If the file is not JSON, lacks a key, or describes a kind of model that is not read.
        """
        return cls(**read_config(config, name))

    def block_parameters(self) -> tuple[Parameter, ...]:
        """Weights of one layer, in module order, names relative to the layer.

        The names are those of Hugging Face's Llama for every family, so that one layer means one thing:
        GPT-2's fused `c_attn` is listed as its three projections, and shapes are (out, in).
        """
        query, key = self.heads * self.head_dim, self.kv_heads * self.head_dim
        attention = [
            *linear("self_attn.q_proj", query, self.hidden, 0, self.qkv_bias),
            *linear("self_attn.k_proj", key, self.hidden, 0, self.qkv_bias),
            *linear("self_attn.v_proj", key, self.hidden, 0, self.qkv_bias),
            *linear("self_attn.o_proj", self.hidden, query, 1, self.output_bias),
        ]
        if self.qk_norm:
            attention += [Parameter(f"self_attn.{x}_norm.weight", (self.head_dim,), None) for x in "qk"]
        gate = linear("mlp.gate_proj", self.ffn, self.hidden, 0, self.mlp_bias) if self.gated else ()
        return (
            *self._norm("input_layernorm"),
            *attention,
            *self._norm("post_attention_layernorm"),
            *gate,
            *linear("mlp.up_proj", self.ffn, self.hidden, 0, self.mlp_bias),
            *linear("mlp.down_proj", self.hidden, self.ffn, 1, self.mlp_bias),
        )

    def embedding_parameters(self) -> tuple[Parameter, ...]:
        """Weights before the first layer: the token table, and learned positions if there are any."""
        table = Parameter("embed_tokens.weight", (self.vocabulary, self.hidden), 0)
        if not self.positions:
            return (table,)
        return table, Parameter("embed_positions.weight", (self.positions, self.hidden), None)

    def head_parameters(self) -> tuple[Parameter, ...]:
        """Weights after the last layer: the final norm, and the head unless it uses the embedding table."""
        head = () if self.tied else linear("lm_head", self.vocabulary, self.hidden, 0, bias=False)
        return (*self._norm("norm"), *head)

    def _norm(self, name: str) -> tuple[Parameter, ...]:
        weight = Parameter(f"{name}.weight", (self.hidden,), None)
        return (weight,) if self.norm == "rms" else (weight, Parameter(f"{name}.bias", (self.hidden,), None))

    @property
    def layer_parameters(self) -> int:
        """Elements of one layer."""
        return sum(p.numel for p in self.block_parameters())

    @property
    def parameters(self) -> int:
        """Elements of the whole model; a tied table counts once."""
        ends = (*self.embedding_parameters(), *self.head_parameters())
        return self.layers * self.layer_parameters + sum(p.numel for p in ends)

    @property
    def active(self) -> int:
        """Elements that one token uses, both embedding tables counted. All of them in a dense model."""
        return self.parameters

    @property
    def active_without_input_embedding(self) -> int:
        """Elements a token uses, less a token table that is only looked up (a tied one is the head)."""
        return self.parameters - (0 if self.tied else self.vocabulary * self.hidden)

    def kv_bytes_per_token(self, bytes_per_value: float = 2) -> float:
        """Bytes that the keys and values of one token take in all layers, one copy.

        2 × layers × KV heads × head dim × bytes per value; a window limits the tokens, not the bytes of one.
        """
        return 2 * self.layers * self.kv_heads * self.head_dim * bytes_per_value

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain data."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**values, "ignored_keys": list(self.ignored_keys)}


def linear(name: str, out: int, into: int, tp_dim: int, bias: bool) -> tuple[Parameter, ...]:
    """Weights of a linear layer; its bias is split only where the output features are."""
    weight = Parameter(f"{name}.weight", (out, into), tp_dim)
    if not bias:
        return (weight,)
    return weight, Parameter(f"{name}.bias", (out,), 0 if tp_dim == 0 else None)


def model(source: "str | Path | Mapping[str, Any] | Model") -> Model:
    """Return a model by preset name, by path of a Hugging Face `config.json`, or from that file's dict.

    Raises
    ------
    ValueError
        If the name is no preset and no file; the message lists the presets.

    Examples
    --------
    >>> model("llama-3.1-70b").parameters
    70553706496
    """
    if isinstance(source, Model):
        return source
    if isinstance(source, Mapping):
        return Model.from_config(source)
    if not isinstance(source, str | Path):
        raise TypeError(f"model={source!r} must be a preset's name, a path to a config.json, or its dict")
    found = presets.find("models", str(source))
    if found is not None:
        return Model(**{**read_config(found["config"], found["name"]), "source": found["source"]})
    if Path(source).exists():
        return Model.from_config(source)
    if isinstance(source, Path) or str(source).endswith(".json") or "/" in str(source):
        raise ValueError(
            f"model file {str(source)!r} does not exist; give the path of a Hugging Face config.json"
        )
    names = ", ".join(presets.names("models"))
    raise ValueError(f"model {str(source)!r} is neither a preset nor a file; presets are {names}")
