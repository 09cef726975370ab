"""The key-value cache: the ideal and what an engine takes, one copy and on a rank, and what a pool holds."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any

from playbook.predict.inference_rules import check_length
from playbook.predict.kv_layers import KvLayers, as_layers, padding
from playbook.predict.kv_pool import KvPool
from playbook.predict.kv_words import kv_note
from playbook.predict.left_out import left_out
from playbook.spec import Model
from playbook.spec.formats import CacheFormat, cache_format
from playbook.spec.rules import divisors, flag, settle, whole
from playbook.units import gb, size, thousands

if TYPE_CHECKING:
    from pandas import DataFrame

BATCHED_TOKENS = 8192
"""Tokens of one step by default: vLLM's server on a GPU of 70 GiB or more that is no A100."""

NUMBERS = ("tokens", "sequences", "tp", "dp", "cp", "block", "batched")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class KvCache:
    """Predicted cache of some sequences of one length.

    Parameters
    ----------
    layers
        Kinds of layers.
    form
        Format of the values.
    tokens, sequences
        Length of each sequence, and how many there are over all replicas.
    tp, dp, cp
        Ranks that split heads, that split sequences, and that split each sequence.
    block
        Tokens of a page.
    batched
        Tokens that one step takes at most.
    hybrid
        Whether the engine gives back pages behind a window.
    left_out
        What of the model is not in the layers, in words.
    """

    layers: tuple[KvLayers, ...]
    form: CacheFormat
    tokens: int = 4096
    sequences: int = 1
    tp: int = 1
    dp: int = 1
    cp: int = 1
    block: int = 16
    batched: int = BATCHED_TOKENS
    hybrid: bool = True
    left_out: str = ""

    def __post_init__(self) -> None:
        for name in NUMBERS:
            settle(self, **{name: whole(name, getattr(self, name))})
        flag("hybrid_allocator", self.hybrid)
        for layers in self.layers:
            if self.tp % layers.heads and layers.heads % self.tp:
                raise ValueError(
                    f"tp={self.tp} neither divides {layers.heads} key-value heads nor is a multiple of them; "
                    f"use tp={', '.join(map(str, divisors(layers.heads)))} or a multiple of {layers.heads}"
                )

    def __repr__(self) -> str:
        return (
            f"KvCache({thousands(self.sequences)} x {thousands(self.tokens)} tokens in {self.form.name}: "
            f"{size(self.bytes_per_token)} a token, {gb(self.total_bytes)} one copy, "
            f"{gb(self.bytes_per_rank)} a rank, {gb(self.engine_bytes)} in pages"
            f"{self.note and f'; {self.note}'})"
        )

    @property
    def bytes_per_token(self) -> int:
        """Bytes of one token in all layers, one copy; a window limits the tokens, not the bytes of one."""
        return ceil(sum(kind.count * kind.token_bytes(self.form) for kind in self.layers))

    @property
    def total_bytes(self) -> int:
        """One copy of all sequences, tokens behind a window left out."""
        return ceil(self.sequences * sum(self._ideal(kind, 1, 1) for kind in self.layers))

    @property
    def bytes_per_rank(self) -> int:
        """All sequences of a rank with windows and replication: the ideal."""
        return ceil(self.rank_sequences * sum(self._ideal(kind, self.tp, self.cp) for kind in self.layers))

    @property
    def engine_bytes(self) -> int:
        """All sequences of a rank in pages, by vLLM's rule."""
        return self.rank_sequences * self.sequence_bytes(self.tokens)

    @property
    def paging_bytes(self) -> int:
        """What pages take beyond the ideal: part-filled ones, and tokens that no layer reads any more."""
        return self.engine_bytes - self.bytes_per_rank

    @property
    def padding_bytes(self) -> int:
        """What vLLM takes besides for layers that are not there, so that its groups of layers are equal."""
        extra = padding([kind.count for kind in self.layers]) if self.hybrid else [0] * len(self.layers)
        rows = zip(extra, self.rows, strict=True)
        return sum(count * row["engine_bytes"] // row["layers"] for count, row in rows)

    @property
    def rank_sequences(self) -> int:
        """Sequences of one replica."""
        return ceil(self.sequences / self.dp)

    @property
    def copies(self) -> float:
        """Times that the tensor-parallel group holds the cache."""
        every = self.tp * sum(self._ideal(kind, self.tp, 1) for kind in self.layers)
        return every / sum(self._ideal(kind, 1, 1) for kind in self.layers)

    @property
    def expanded_bytes(self) -> int | None:
        """One copy of all sequences if every query head kept its own keys and values; None: not known."""
        if any(kind.expanded_values is None for kind in self.layers):
            return None
        values = sum(k.count * k.kept(self.tokens) * (k.expanded_values or 0) for k in self.layers)
        return ceil(self.sequences * values * self.form.bits / 8)

    @property
    def slope_bytes(self) -> int:
        """Bytes that each further token adds to a sequence longer than every window, one copy."""
        return ceil(sum(k.count * k.token_bytes(self.form) for k in self.layers if k.window is None))

    @property
    def constant_bytes(self) -> int:
        """Bytes of the windowed layers of such a sequence: bytes(n) = constant + slope · n."""
        return ceil(sum(k.count * k.window * k.token_bytes(self.form) for k in self.layers if k.window))

    @property
    def one_rate(self) -> bool:
        """Whether bytes per token are one number: no layer stops growing with the sequence."""
        return self.constant_bytes == 0

    @property
    def block_bytes(self) -> int:
        """A page in every layer of a rank."""
        return sum(kind.count * self.page_bytes(kind) for kind in self.layers)

    def page_bytes(self, kind: KvLayers) -> int:
        """A page in one layer of a rank."""
        return ceil(self.block * kind.rank_heads(self.tp) * kind.head_bytes(self.form))

    def sequence_bytes(self, tokens: int) -> int:
        """Pages of one sequence of a length on a rank."""
        local = ceil(tokens / self.cp)
        return sum(
            kind.count * kind.pages(local, self.block, self.batched, self.hybrid) * self.page_bytes(kind)
            for kind in self.layers
        )

    def pool(self, pool_bytes: float) -> KvPool:
        """Ask what pools of that many bytes a rank hold."""
        return KvPool(cache=self, bytes=pool_bytes)

    def pool_of(self, blocks: int) -> KvPool:
        """Ask what pools of that many pages, in every layer of a rank, hold."""
        return self.pool(whole("blocks", blocks, least=0) * self.block_bytes)

    @property
    def note(self) -> str:
        """What to mind, in words; empty if there is nothing."""
        return kv_note(self)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One row a kind of layers."""
        return [self._row(kind) for kind in self.layers]

    @property
    def table(self) -> "DataFrame":
        """One row a kind of layers: what it keeps, and what it takes on a rank."""
        import pandas as pd

        return pd.DataFrame(self.rows)

    def _row(self, kind: KvLayers) -> dict[str, Any]:
        local = ceil(self.tokens / self.cp)
        pages = kind.pages(local, self.block, self.batched, self.hybrid)
        return {
            "kind": kind.kind,
            "layers": kind.count,
            "heads": kind.heads,
            "heads_per_rank": kind.rank_heads(self.tp),
            "copies": kind.copies(self.tp),
            "window": kind.window,
            "bytes_per_token": ceil(kind.count * kind.token_bytes(self.form)),
            "tokens_kept": kind.kept(self.tokens),
            "bytes_per_rank": ceil(self.rank_sequences * self._ideal(kind, self.tp, self.cp)),
            "pages": pages,
            "engine_bytes": self.rank_sequences * kind.count * pages * self.page_bytes(kind),
        }

    def _ideal(self, kind: KvLayers, tp: int, cp: int) -> float:
        """Bytes of one sequence in layers of a kind on a rank."""
        tokens = ceil(kind.kept(self.tokens) / cp)
        return kind.count * tokens * kind.rank_heads(tp) * kind.head_bytes(self.form)


def kv_cache(
    model: Model | Iterable[KvLayers],
    tokens: int = 4096,
    sequences: int = 1,
    dtype: str | CacheFormat = "bf16",
    **how: Any,
) -> KvCache:
    """Predict the key-value cache of some sequences of one length.

    Parameters
    ----------
    model
        A model, or kinds of layers with a geometry of their own (`KvLayers`).
    tokens, sequences
        Length of each sequence, and how many there are over all replicas.
    dtype
        Format of the values: a name in `CACHE_FORMATS`.
    how
        Further fields of `KvCache`: tp, dp, cp, block, batched, hybrid.

    Notes
    -----
    Prediction. A token takes 2 × layers × KV heads × head dim × bytes per value, or layers × (latent +
    rotary) values where attention is latent; a latent vector is one head and cannot be split over TP ranks.
    Sequences longer than a model's learned positions are refused.

    Examples
    --------
    >>> from playbook.spec import model
    >>> kv_cache(model("llama-3.1-70b"), tokens=32_768).total_bytes
    10737418240
    """
    if isinstance(model, Model):
        check_length(model, "tokens", whole("tokens", tokens))
        how = {"left_out": left_out(model), **how}
    return KvCache(
        layers=as_layers(model), form=cache_format(dtype), tokens=tokens, sequences=sequences, **how
    )
