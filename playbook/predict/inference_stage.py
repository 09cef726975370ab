"""Memory of one pipeline rank of an inference engine."""

import math
from dataclasses import dataclass
from typing import Any

from playbook.predict.kv_cache import KvCache
from playbook.predict.kv_layers import kv_layers
from playbook.predict.kv_pool import pool_bytes
from playbook.predict.memory import COMMUNICATOR_BYTES, CONTEXT_BYTES
from playbook.predict.prefill_peak import Chunk, Instant, instants, rotary_bytes
from playbook.predict.resident_weights import ResidentWeights, resident_weights
from playbook.spec import Gpu, Layout, Model, Serving
from playbook.spec.cluster import MIB
from playbook.spec.formats import cache_format, weight_format

REDUCTION_BYTES = 3 * 8 * MIB
"""vLLM's own all-reduce: a buffer for inputs, one for two-step reductions, and the ranks' addresses, 8 MiB
each (distributed/device_communicators/custom_all_reduce.py)."""

NODE_RANKS = 8
"""Ranks up to which vLLM's own all-reduce is used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceStage:
    """What one rank needs.

    Parameters
    ----------
    weights, cache
        Resident weights, and the cache of its layers.
    instant
        The moment of a step that needs most.
    rotary_bytes, buffer_bytes, context_bytes
        Tables of positions, buffers of communication, and what lies outside torch, graphs included.
    budget_bytes
        Memory that the engine may take.
    """

    weights: ResidentWeights
    cache: KvCache
    instant: Instant
    rotary_bytes: int
    buffer_bytes: int
    context_bytes: int
    budget_bytes: float

    @property
    def activation_bytes(self) -> int:
        """A step's peak over weights and cache."""
        return self.instant.bytes + self.rotary_bytes

    @property
    def peak_bytes(self) -> int:
        """What the allocator hands out for this load."""
        return self.weights.bytes + self.cache.engine_bytes + self.activation_bytes + self.buffer_bytes

    @property
    def pool_bytes(self) -> int:
        """What is left for the cache; below 0 so much is missing."""
        other = self.context_bytes + self.buffer_bytes
        return math.floor(pool_bytes(self.budget_bytes, 1, self.weights.bytes, self.activation_bytes, other))

    @property
    def terms(self) -> list[dict[str, Any]]:
        """Rows of term, bytes and formula, those of zero bytes left out."""
        cache, tables = self.cache, "tables of sines and cosines"
        pages = (
            f"{cache.rank_sequences} sequence{'s' * (cache.rank_sequences > 1)} x {cache.tokens} "
            f"tokens in pages of {cache.block}, "
            f"{cache.form.name}"
        )
        rows = [
            ("parameters", self.weights.bytes, self.weights.formula),
            ("kv_cache", cache.engine_bytes, pages),
            (self.instant.term, self.instant.bytes, self.instant.formula),
            ("workspace", self.rotary_bytes, tables),
            ("communication_buffers", self.buffer_bytes, "all-reduce, stage inputs, gathered tokens"),
            ("context", self.context_bytes, "CUDA context, communicator, graphs"),
        ]
        found: dict[str, dict[str, Any]] = {}
        for term, size, formula in rows:
            row = found.setdefault(term, {"term": term, "bytes": 0, "formula": ""})
            row["bytes"] += size
            row["formula"] = " + ".join(filter(None, [row["formula"], formula if size else ""]))
        return [row for row in found.values() if row["bytes"]]


def stage_of(
    model: Model,
    serving: Serving,
    layout: Layout,
    gpu: Gpu,
    step_tokens: int,
    number: int,
    stage_layers: tuple[int, ...],
) -> InferenceStage:
    """Memory of a rank of the stage of a number."""
    form = weight_format(serving.weights)
    first = sum(stage_layers[:number])
    cache = KvCache(
        layers=kv_layers(model, first, first + stage_layers[number]),
        form=cache_format(serving.kv_dtype),
        tokens=serving.sequence,
        sequences=serving.concurrency,
        tp=layout.tp,
        dp=layout.dp,
        cp=layout.cp,
        block=serving.block,
        batched=step_tokens,
        hybrid=serving.hybrid_allocator,
    )
    value = form.other_bits // 8
    chunk = chunk_of(serving, layout, step_tokens, cache.rank_sequences, value)
    last = number == len(stage_layers) - 1
    moments = [found for found in instants(model, layout, chunk) if last or found.name != "head"]
    return InferenceStage(
        weights=resident_weights(model, form, layout, number, stage_layers),
        cache=cache,
        instant=max(moments, key=lambda moment: moment.bytes),
        rotary_bytes=rotary_bytes(model, value),
        buffer_bytes=buffer_bytes(model, layout, chunk, first=number == 0),
        context_bytes=CONTEXT_BYTES + COMMUNICATOR_BYTES * (layout.world > 1) + serving.graph_bytes,
        budget_bytes=serving.utilisation * gpu.memory_bytes,
    )


def chunk_of(serving: Serving, layout: Layout, step_tokens: int, sequences: int, value: int) -> Chunk:
    """The largest step: as many tokens as it may take, or all prompts."""
    tokens = min(step_tokens, max(sequences * serving.prompt, sequences))
    tokens = math.ceil(tokens / layout.cp)
    gathered = tokens * layout.dp if layout.ep > 1 else tokens
    return Chunk(tokens=tokens, rows=min(sequences, tokens), value=value, gathered=gathered)


def buffer_bytes(model: Model, layout: Layout, chunk: Chunk, first: bool) -> int:
    """Buffers of reductions, of a later stage's input and residual, and of tokens gathered for experts."""
    reduction = REDUCTION_BYTES if 1 < layout.tp <= NODE_RANKS else 0
    wide = model.hidden * chunk.value
    received = 0 if first else 2 * chunk.tokens * wide
    gathered = 2 * chunk.gathered * wide if chunk.gathered > chunk.tokens else 0
    return reduction + received + gathered
