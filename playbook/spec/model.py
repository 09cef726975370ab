"""A decoder-only transformer, described by its sizes: parameters are counted tensor by tensor."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from playbook.spec import presets
from playbook.spec.config import KINDS, not_understood, read_config
from playbook.spec.counts import Counts
from playbook.spec.moe import Mla, Moe, part
from playbook.spec.rules import choice, divisors, flag, positive, settle, text, whole

FAMILIES = tuple(KINDS)
SIZES = ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocabulary", "max_sequence")
FLAGS = ("gated", "tied", "qkv_bias", "output_bias", "mlp_bias", "chunked", "sinks", "sandwich", "post_norm")


@dataclass(frozen=True, slots=True, kw_only=True)
class Model(Counts):
    """Sizes of a decoder-only transformer.

    Parameters
    ----------
    name, family
        What to call it, and the kind of architecture: one of `FAMILIES`.
    layers, hidden, heads, kv_heads, head_dim, ffn, vocabulary
        Numbers of layers, of features, of query and key-value heads, of features of a query or key head, of
        a dense layer's feed-forward features and of tokens in the vocabulary.
    gated, activation
        Whether the feed-forward part has a gate projection (SwiGLU); its function, "silu" or "gelu".
    norm
        "rms" (one weight), "layer" (weight and bias) or "plain" (no weights).
    tied
        Whether the head uses the embedding table.
    qkv_bias, output_bias, mlp_bias
        Biases of the projections; in latent attention `qkv_bias` is that of the squeezing ones.
    qk_norm
        Norms on queries and keys: True over each head ("head" is the same), "full" over all heads together.
    positions
        Learned positions; 0 means rotary ones.
    window, full_layers, chunked
        Tokens that a token attends to; None is all. Numbers of the layers that have no window. Whether the
        window is the token's own chunk (Llama 4), not the tokens before it.
    sinks
        Whether each query head of each layer has a learned score that takes attention from the tokens.
    sandwich, post_norm
        Norms before and behind attention and feed-forward (Gemma), or behind them only (OLMo 2).
    moe, mla
        Routed experts and latent attention, where the model has them.
    mtp
        Multi-token modules, counted apart (`mtp_parameters`).
    scalars
        Further single weights of each layer, such as learned scale factors.
    max_sequence
        Longest sequence that the model is made for, in tokens.
    norm_epsilon, rope_theta
        Constants of the norms and of the rotary positions.
    ignored_keys
        Keys of the configuration file that were not understood and have no part in any number here.
    ignored_values
        What each of them says, in short; empty where that is not known.
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
    qk_norm: bool | str = False
    positions: int = 0
    window: int | None = None
    full_layers: tuple[int, ...] = ()
    chunked: bool = False
    activation: str = "silu"
    sinks: bool = False
    sandwich: bool = False
    post_norm: bool = False
    moe: Moe | None = None
    mla: Mla | None = None
    mtp: int = 0
    scalars: int = 0
    norm_epsilon: float = 1e-6
    rope_theta: float = 10_000.0
    ignored_keys: tuple[str, ...] = ()
    ignored_values: tuple[str, ...] = ()
    source: str = "given as numbers"

    def __post_init__(self) -> None:
        settle(self, name=text("name", self.name), family=choice("family", self.family, FAMILIES))
        settle(self, norm=choice("norm", self.norm, ("rms", "layer", "plain")))
        settle(self, activation=choice("activation", self.activation, ("silu", "gelu")))
        settle(self, source=text("source", self.source), ignored_keys=tuple(self.ignored_keys))
        settle(self, ignored_values=tuple(self.ignored_values))
        for name in SIZES:
            settle(self, **{name: whole(name, getattr(self, name))})
        for name in FLAGS:
            flag(name, getattr(self, name))
        for name in ("positions", "mtp", "scalars"):
            settle(self, **{name: whole(name, getattr(self, name), least=0)})
        for name in ("norm_epsilon", "rope_theta"):
            settle(self, **{name: positive(name, getattr(self, name))})
        settle(self, moe=part(Moe, self.moe), mla=part(Mla, self.mla), qk_norm=norm_kind(self.qk_norm))
        settle(self, full_layers=tuple(sorted({whole("full_layers", n, least=0) for n in self.full_layers})))
        if self.window is not None:
            settle(self, window=whole("window", self.window))
        self._check()

    def _check(self) -> None:
        """Refuse sizes that contradict each other."""
        if self.heads % self.kv_heads:
            raise ValueError(
                f"kv_heads={self.kv_heads} does not divide heads={self.heads}; "
                f"use one of {', '.join(map(str, divisors(self.heads)))}"
            )
        if self.window is None and (self.full_layers or self.chunked):
            raise ValueError("full_layers or chunked are given but window=None; give the window's tokens")
        if self.full_layers and self.full_layers[-1] >= self.layers:
            raise ValueError(
                f"full_layers has layer {self.full_layers[-1]} of {self.layers} layers; "
                f"use numbers from 0 to {self.layers - 1}"
            )
        if self.moe is not None:
            self.moe.check(self.layers)
        if self.sandwich and self.post_norm:
            raise ValueError("sandwich=True and post_norm=True exclude each other; use one of them")
        if self.mla is not None and self.head_dim != self.mla.head_dim:
            raise ValueError(
                f"head_dim={self.head_dim} but mla has nope_dim + rope_dim = {self.mla.head_dim}; "
                f"use head_dim={self.mla.head_dim}"
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

    @property
    def unread(self) -> str:
        """Keys of the configuration file that were not understood, with what each may mean; else empty."""
        return not_understood(self.family, self.ignored_keys, self.ignored_values)

    @property
    def unlike_llama(self) -> tuple[str, ...]:
        """What the model has and a Llama kind has not, in words; empty is a Llama kind.

        A Llama kind has RMS norms before attention and feed-forward, rotary positions, norms over single
        heads if any, and a feed-forward part gated by SiLU in each layer. Windows make no other kind.
        """
        odd = {
            "norms without bias or scale" if self.norm == "plain" else "LayerNorm": self.norm != "rms",
            "learned positions": self.positions > 0,
            "a feed-forward part without gate": not self.gated,
            "GELU": self.activation != "silu",
            "routed experts": self.moe is not None,
            "latent attention": self.mla is not None,
            "norms before and behind each part": self.sandwich,
            "norms behind each part only": self.post_norm,
            "norms over all heads together": self.qk_norm == "full",
            "attention sinks": self.sinks,
            "further scalars": self.scalars > 0,
            "multi-token modules": self.mtp > 0,
        }
        return tuple(name for name, found in odd.items() if found)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain data."""
        values = asdict(self)
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def norm_kind(value: object) -> bool | str:
    """Read which norm queries and keys have; "head" is what True means."""
    if isinstance(value, bool):
        return value
    kind = choice("qk_norm", value, ("head", "full"))
    return True if kind == "head" else kind


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
        hint = presets.like("models", str(source)) if not str(source).endswith(".json") else ""
        raise ValueError(
            f"model file {str(source)!r} does not exist"
            f"{hint or '; give the path of a Hugging Face config.json'}"
        )
    hint = presets.like("models", source) or f"; presets are {', '.join(presets.names('models'))}"
    raise ValueError(f"model {source!r} is neither a preset nor a file{hint}")
