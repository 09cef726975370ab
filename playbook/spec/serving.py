"""What is served: prompt and output lengths, concurrency, the formats of weights and cache, and what the
engine may take."""

from dataclasses import dataclass

from playbook.spec.formats import CACHE_FORMATS, WEIGHT_FORMATS, cache_format, weight_format
from playbook.spec.rules import choice, flag, positive, settle, whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """A serving load and its engine.

    Parameters
    ----------
    prompt, output
        Tokens of a prompt and of its answer.
    concurrency
        Sequences in the engine at once, over all data-parallel replicas.
    kv_dtype, weights
        Formats of the key-value cache and of the resident weights: names in `CACHE_FORMATS` and
        `WEIGHT_FORMATS`.
    block
        Tokens of a page of the cache.
    max_batched_tokens
        Tokens that one step takes at most; None is vLLM's default for its server: 8192 on a GPU of 70 GiB or
        more that is no A100, else 2048.
    utilisation
        Part of the device's memory that the engine may take, from 0 to 1.
    hybrid_allocator
        Whether pages that a windowed layer no longer reads are given back; if not, every layer keeps every
        token.
    graph_bytes
        What captured CUDA graphs take, as the engine's log says; 0 leaves them out.
    """

    prompt: int = 4096
    output: int = 512
    concurrency: int = 64
    kv_dtype: str = "bf16"
    weights: str = "bf16"
    block: int = 16
    max_batched_tokens: int | None = None
    utilisation: float = 0.9
    hybrid_allocator: bool = True
    graph_bytes: int = 0

    def __post_init__(self) -> None:
        for name in ("prompt", "output", "concurrency", "block"):
            settle(self, **{name: whole(name, getattr(self, name))})
        settle(self, kv_dtype=choice("kv_dtype", self.kv_dtype, CACHE_FORMATS))
        settle(self, weights=choice("weights", self.weights, WEIGHT_FORMATS))
        settle(self, graph_bytes=whole("graph_bytes", self.graph_bytes, least=0))
        if self.max_batched_tokens is not None:
            settle(self, max_batched_tokens=whole("max_batched_tokens", self.max_batched_tokens))
        settle(self, utilisation=positive("utilisation", self.utilisation))
        if self.utilisation > 1:
            raise ValueError(f"utilisation={self.utilisation} is a part of the memory; use 0.9 for 90 %")
        flag("hybrid_allocator", self.hybrid_allocator)

    @property
    def sequence(self) -> int:
        """Tokens of one sequence at its end: prompt and output."""
        return self.prompt + self.output

    @property
    def kv_bytes_per_value(self) -> float:
        """Bytes of one cached value, without the scales of heads."""
        return cache_format(self.kv_dtype).bits / 8

    @property
    def weight_bytes_per_value(self) -> float:
        """Bytes of one quantised weight, without the scales of rows."""
        return weight_format(self.weights).bits / 8
