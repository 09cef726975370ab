"""What each kind of layer caches of a token, how many tokens it keeps, and what an engine's pages of it
take."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from playbook.spec import Model
from playbook.spec.formats import CacheFormat
from playbook.spec.rules import flag, settle, whole


@dataclass(frozen=True, slots=True, kw_only=True)
class KvLayers:
    """Layers of a model that cache alike.

    Parameters
    ----------
    count
        How many.
    heads
        Key-value heads; a latent vector is one.
    head_dim
        Values of a key: of the whole latent vector where there is one.
    value_dim
        Values of a value: None is `head_dim`, 0 for a latent vector.
    window
        Tokens that a token looks back at, itself included; None is all.
    chunked
        Whether the window is the token's own chunk.
    rope_dim
        Rotary part of a latent vector.
    shared
        Whether they read an earlier layer's cache and have none of their own.
    expanded_values
        Values that a token would take if every query head had its own key and value; None is not known.
    """

    count: int
    heads: int
    head_dim: int
    value_dim: int | None = None
    window: int | None = None
    chunked: bool = False
    rope_dim: int = 0
    shared: bool = False
    expanded_values: int | None = None

    def __post_init__(self) -> None:
        for name in ("count", "heads", "head_dim"):
            settle(self, **{name: whole(name, getattr(self, name))})
        value_dim = self.head_dim if self.value_dim is None else self.value_dim
        settle(self, value_dim=whole("value_dim", value_dim, least=0))
        settle(self, rope_dim=whole("rope_dim", self.rope_dim, least=0))
        if self.window is not None:
            settle(self, window=whole("window", self.window))
        for name in ("chunked", "shared"):
            flag(name, getattr(self, name))
        if self.chunked and self.window is None:
            raise ValueError("chunked=True but window=None; give the tokens of a chunk")

    @property
    def kind(self) -> str:
        """Kind of the layers in a word: full, window, chunk, latent or shared."""
        if self.shared:
            return "shared"
        if self.latent:
            return "latent"
        if self.window is None:
            return "full"
        return "chunk" if self.chunked else "window"

    @property
    def latent(self) -> bool:
        """Whether one latent vector stands for keys and values."""
        return self.value_dim == 0

    @property
    def head_values(self) -> int:
        """Values that one head caches of one token."""
        assert self.value_dim is not None
        return self.head_dim + self.value_dim

    def head_bytes(self, form: CacheFormat) -> float:
        """Bytes that one head of one layer caches of one token, scales included."""
        if self.shared:
            return 0
        if not form.latent_only:
            scales = 1 if self.latent else 2
            return self.head_values * form.bits / 8 + scales * form.head_scale_bytes
        if not self.latent:
            raise ValueError(f"kv_dtype={form.name!r} stores a latent vector; use fp8 for layers with heads")
        return (self.head_dim - self.rope_dim) * form.bits / 8 + 2 * self.rope_dim

    def token_bytes(self, form: CacheFormat) -> float:
        """Bytes of one token in one layer, one copy."""
        return self.heads * self.head_bytes(form)

    def rank_heads(self, tp: int) -> int:
        """Heads on a tensor-parallel rank: its part of them, at least one whole."""
        return max(1, math.ceil(self.heads / tp))

    def copies(self, tp: int) -> int:
        """Ranks of a tensor-parallel group that hold the same head."""
        return max(1, tp // self.heads)

    def kept(self, tokens: int) -> int:
        """Tokens of a sequence whose keys and values are still read."""
        return tokens if self.window is None else min(tokens, self.window)

    def pages(self, tokens: int, block: int, batched: int, hybrid: bool) -> int:
        """Pages that an engine takes for one sequence in one layer.

        Parameters
        ----------
        tokens
            Length of the sequence.
        block
            Tokens of a page.
        batched
            Tokens that one step takes at most: the newest are written before old pages go.
        hybrid
            Whether pages behind the window are given back.

        Notes
        -----
        ceil(min(window − 1 + batched, tokens) / block) + 1, since a window may start inside a page; a chunk
        starts on one: ceil(min(chunk + batched, tokens) / block). Never more than all tokens ask for, which
        vLLM's own bound exceeds by a page for a sequence shorter than the window.
        Source: vLLM, v1/kv_cache_interface.py, SlidingWindowSpec and ChunkedLocalAttentionSpec.
        """
        if self.shared:
            return 0
        every = math.ceil(tokens / block)
        if self.window is None or not hybrid:
            return every
        if self.chunked:
            return math.ceil(min(self.window + batched, tokens) / block)
        return min(math.ceil(min(self.window - 1 + batched, tokens) / block) + 1, every)


def kv_layers(model: Model, first: int = 0, last: int | None = None) -> tuple[KvLayers, ...]:
    """Return what a model's layers cache, one entry a kind.

    Parameters
    ----------
    model
        The model.
    first, last
        Layers from the first to the one before the last; all by default.
    """
    windows = model.windows[first:last]
    one, values = layer_of(model), dict.fromkeys(windows, 0)
    for window in windows:
        values[window] += 1
    return tuple(
        replace(one, count=count, window=window, chunked=model.chunked and window is not None)
        for window, count in sorted(values.items(), key=lambda item: (item[0] is not None, item[0]))
    )


def layer_of(model: Model) -> KvLayers:
    """One layer of a model that looks back at every token."""
    mla = model.mla
    if mla is None:
        expanded = 2 * model.heads * model.head_dim
        return KvLayers(count=1, heads=model.kv_heads, head_dim=model.head_dim, expanded_values=expanded)
    return KvLayers(
        count=1,
        heads=1,
        head_dim=mla.kv_rank + mla.rope_dim,
        value_dim=0,
        rope_dim=mla.rope_dim,
        expanded_values=model.heads * (mla.nope_dim + mla.rope_dim + mla.value_dim),
    )


def as_layers(given: "Model | Iterable[KvLayers]") -> tuple[KvLayers, ...]:
    """Return kinds of layers, those of a model if one is given."""
    if isinstance(given, Model):
        return kv_layers(given)
    found = tuple(given)
    wrong = [layers for layers in found if not isinstance(layers, KvLayers)]
    if wrong or not found:
        raise TypeError(f"a cache takes a Model or some KvLayers, not {given!r}")
    return found


def padding(counts: list[int]) -> list[int]:
    """Layers that vLLM adds to each kind so that all its groups have equally many.

    Notes
    -----
    A group is as large as the smallest kind, or as the largest where that is less than 1.5 times it; a kind
    that groups do not divide is filled up. Source: vLLM, v1/core/kv_cache_utils.py, "Add %d padding layers".

    Examples
    --------
    >>> padding([10, 52]), padding([12, 13]), padding([18, 18])
    ([0, 8], [1, 0], [0, 0])
    """
    least, most = min(counts), max(counts)
    group = most if most < 1.5 * least else least
    return [-count % group for count in counts]
