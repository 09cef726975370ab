"""What some families have in place of a dense layer's parts: routed experts, and latent attention."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from playbook.spec.rules import flag, known_keys, settle, whole

Part = TypeVar("Part", "Moe", "Mla")


@dataclass(frozen=True, slots=True, kw_only=True)
class Moe:
    """Feed-forward parts of many experts, of which a router picks a few for each token.

    Parameters
    ----------
    experts, active
        Routed experts of a layer, and how many of them a token uses.
    ffn
        Feed-forward features of one routed expert.
    shared_ffn
        Feed-forward features, all together, of the experts that every token uses; 0 is none.
    first_dense
        Layers at the start that are dense.
    every
        From there on, each `every`-th layer has experts: with 2 and no dense start, layers 1, 3, 5.
    dense_layers
        Further layers that are dense, by number.
    router_bias, expert_bias
        Biases of the router, and of the routed experts' projections.
    shared_gate
        Whether a learned gate of one output scales the shared experts.
    balancing_bias
        Whether a number for each expert, moved by a rule and by no gradient, enters the choice (DeepSeek-V3).
    """

    experts: int
    active: int
    ffn: int
    shared_ffn: int = 0
    first_dense: int = 0
    every: int = 1
    dense_layers: tuple[int, ...] = ()
    router_bias: bool = False
    expert_bias: bool = False
    shared_gate: bool = False
    balancing_bias: bool = False

    def __post_init__(self) -> None:
        for name in ("experts", "active", "ffn", "every"):
            settle(self, **{name: whole(name, getattr(self, name))})
        for name in ("shared_ffn", "first_dense"):
            settle(self, **{name: whole(name, getattr(self, name), least=0)})
        for name in ("router_bias", "expert_bias", "shared_gate", "balancing_bias"):
            flag(name, getattr(self, name))
        settle(self, dense_layers=tuple(whole("dense_layers", n, least=0) for n in self.dense_layers))
        if self.active > self.experts:
            raise ValueError(
                f"active={self.active} of experts={self.experts}: a token cannot use more experts than there "
                f"are; use active={self.experts} or less"
            )
        if self.shared_gate and not self.shared_ffn:
            raise ValueError("shared_gate=True but shared_ffn=0; give the width of the shared experts")

    def check(self, layers: int) -> None:
        """Refuse layers that a model of so many has not.

        Raises
        ------
        ValueError
            If a dense layer is beyond them.
        """
        if self.dense_layers and max(self.dense_layers) >= layers:
            raise ValueError(
                f"dense_layers has layer {max(self.dense_layers)} of {layers} layers; "
                f"use numbers from 0 to {layers - 1}"
            )
        if self.first_dense > layers:
            raise ValueError(f"first_dense={self.first_dense} of {layers} layers; use {layers} or fewer")

    def in_layer(self, layer: int) -> bool:
        """Tell whether a layer has experts, or is dense."""
        if layer < self.first_dense or layer in self.dense_layers:
            return False
        return (layer - self.first_dense + 1) % self.every == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Mla:
    """Latent attention (DeepSeek-V2): keys and values are made from one small vector, which is cached.

    Parameters
    ----------
    query_rank
        Features that queries are squeezed to first; None has one projection instead.
    kv_rank
        Features of the cached vector that keys and values are made from.
    nope_dim, rope_dim
        Features of a query or key head without and with rotary positions; all heads share one rotary key.
    value_dim
        Features of a value head.
    """

    query_rank: int | None
    kv_rank: int
    nope_dim: int
    rope_dim: int
    value_dim: int

    def __post_init__(self) -> None:
        if self.query_rank is not None:
            settle(self, query_rank=whole("query_rank", self.query_rank))
        for name in ("kv_rank", "nope_dim", "rope_dim", "value_dim"):
            settle(self, **{name: whole(name, getattr(self, name))})

    @property
    def head_dim(self) -> int:
        """Features of a query or key head."""
        return self.nope_dim + self.rope_dim


def part(kind: type[Part], given: "Part | Mapping[str, Any] | None") -> Part | None:
    """Return a part of a model, which may be given as its plain data.

    Raises
    ------
    TypeError
        If it is something else.
    """
    if given is None or isinstance(given, kind):
        return given
    if isinstance(given, Mapping):
        known_keys(kind.__name__, given, kind.__dataclass_fields__)
        return kind(**given)
    raise TypeError(
        f"{kind.__name__.lower()}={given!r} must be a {kind.__name__}, its fields as a dict, or None"
    )
