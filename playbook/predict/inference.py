"""Inference memory of a model, a serving load, a layout and machines: the peak by term, the pool that is left
for the cache, and what it holds."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from playbook.predict.fit_search import Memo, Tried, last_that_fits
from playbook.predict.inference_rules import check_layout, check_length, check_stages, step_tokens
from playbook.predict.inference_stage import InferenceStage, stage_of
from playbook.predict.kv_cache import KvCache
from playbook.predict.kv_pool import KvPool
from playbook.predict.left_out import left_out, noted
from playbook.spec import Cluster, Layout, Model, Serving, smallest_cluster
from playbook.tables import table
from playbook.units import counted, gb, thousands

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class InferenceMemory:
    """Predicted memory of the rank of an engine that needs most.

    Parameters
    ----------
    model, serving, layout, cluster
        What was asked.
    stages
        Each pipeline rank's memory.
    """

    model: Model
    serving: Serving
    layout: Layout
    cluster: Cluster
    stages: tuple[InferenceStage, ...]

    def __repr__(self) -> str:
        gpu, fits = self.cluster.gpu, "fits" if self.fits else "does not fit"
        return (
            f"InferenceMemory({self.model.name} in {self.serving.weights}: weights {gb(self.weights_bytes)}, "
            f"cache of {counted(self.serving.concurrency, 'sequence')} {gb(self.kv_cache.engine_bytes)}, "
            f"peak {gb(self.peak_bytes)}, {fits} {self.serving.utilisation:.0%} of {gpu.name} with "
            f"{gb(gpu.memory_bytes)}; the pool holds {thousands(self.capacity_tokens)} tokens, the size of "
            f"{counted(self.capacity_sequences, 'such sequence')}{self.note and f'; {self.note}'})"
        )

    @property
    def worst(self) -> InferenceStage:
        """The pipeline rank that needs most."""
        return max(self.stages, key=lambda stage: stage.peak_bytes)

    @property
    def kv_cache(self) -> KvCache:
        """The cache of the load on the worst rank."""
        return self.worst.cache

    @property
    def weights_bytes(self) -> int:
        """Resident weights of the worst rank."""
        return self.worst.weights.bytes

    @property
    def activation_bytes(self) -> int:
        """What a step needs over the weights and the cache on the worst rank: vLLM's profiled peak."""
        return self.worst.activation_bytes

    @property
    def peak_bytes(self) -> int:
        """Weights, the pages of this load, a step's workspace and buffers on the worst rank."""
        return self.worst.peak_bytes

    @property
    def reserved_bytes(self) -> int:
        """Peak and the part of the memory that the engine leaves to others."""
        return self.peak_bytes + self.headroom_bytes

    @property
    def device_bytes(self) -> int:
        """Reserved memory with the driver's context, communicators and captured graphs."""
        return self.reserved_bytes + self.worst.context_bytes

    @property
    def engine_bytes(self) -> int:
        """What the engine itself takes for this load: peak, context, communicators and graphs."""
        return self.peak_bytes + self.worst.context_bytes

    @property
    def budget_bytes(self) -> int:
        """What the engine may take: the memory of the device less what it leaves to others."""
        return self.cluster.gpu.memory_bytes - self.headroom_bytes

    @property
    def headroom_bytes(self) -> int:
        """(1 − utilisation) · memory of the device."""
        return round((1 - self.serving.utilisation) * self.cluster.gpu.memory_bytes)

    @property
    def fits(self) -> bool:
        """Whether the whole load fits at once: `device_bytes` is at most the GPU's memory."""
        return self.device_bytes <= self.cluster.gpu.memory_bytes

    @property
    def instant(self) -> str:
        """When a step needs most: "prefill feed-forward", "head" and so on."""
        return self.worst.instant.name

    @property
    def pool_bytes(self) -> int:
        """What is left for the cache on the rank that has least: utilisation · total − all the rest."""
        return min(stage.pool_bytes for stage in self.stages)

    @property
    def pools(self) -> tuple[KvPool, ...]:
        """The pool of each pipeline rank."""
        return tuple(stage.cache.pool(max(0, stage.pool_bytes)) for stage in self.stages)

    @property
    def capacity_tokens(self) -> int:
        """Tokens that the engines of all replicas hold."""
        return min(pool.tokens for pool in self.pools)

    @property
    def capacity_sequences(self) -> int:
        """Sequences of this length that they hold at once, the engine being set up for this concurrency."""
        return min(pool.sequences for pool in self.pools)

    @property
    def largest_concurrency(self) -> int:
        """Sequences of this length that an engine set up for them can run at once; 0 if not one.

        Notes
        -----
        What `fit` answers for "concurrency". It is a little below `capacity_sequences` of a small load: a
        step for more sequences has more rows of logits, which leave less for the pool.
        """

        def evaluate(index: int) -> Tried:
            load = replace(self.serving, concurrency=index + 1)
            found = inference_memory(self.model, load, self.layout, self.cluster)
            return Tried(
                value=index + 1,
                peak_bytes=found.peak_bytes,
                device_bytes=found.device_bytes,
                fits=found.fits,
            )

        index = last_that_fits(Memo(evaluate, self.cluster.gpu.memory_bytes), None)
        return 0 if index is None else index + 1

    @property
    def longest_sequence(self) -> int:
        """Tokens of the longest sequence that fits alone; every layer with a window has no such end."""
        return min(pool.longest for pool in self.pools)

    @property
    def terms(self) -> list[dict[str, Any]]:
        """Rows of term, bytes and formula of the worst rank."""
        share = f"(1 - {self.serving.utilisation:g}) x {self.cluster.gpu.memory_bytes} left to others"
        left = {"term": "reserved_unused", "bytes": self.headroom_bytes, "formula": share}
        return [*self.worst.terms, left]

    @property
    def per_stage(self) -> list[dict[str, int]]:
        """Peak and pool of each pipeline rank."""
        return [
            {"stage": number, "peak_bytes": stage.peak_bytes, "pool_bytes": stage.pool_bytes}
            for number, stage in enumerate(self.stages)
        ]

    @property
    def worst_rank(self) -> dict[str, int]:
        """Number of the worst rank and its place on each axis."""
        rank = self.layout.rank(pp=self.stages.index(self.worst))
        return {"rank": rank, **self.layout.coordinates(rank)}

    @property
    def note(self) -> str:
        """What to mind, and what of the model is left out, in words."""
        found = []
        if self.pool_bytes < 0:
            found.append(f"weights and workspace leave no pool: {gb(-self.pool_bytes)} are missing")
        elif not self.fits:
            found.append(
                f"{thousands(self.capacity_sequences)} of {thousands(self.serving.concurrency)} sequences "
                f"{'fits' if self.capacity_sequences == 1 else 'fit'} at once, the others wait"
            )
        return noted(*found, self.kv_cache.note, left_out(self.model))

    @property
    def table(self) -> "DataFrame":
        """The memory table, one row a term."""
        common = {
            "scenario": self.model.name,
            "rank": self.worst_rank["rank"],
            "op": self.instant,
            "instant": self.instant,
            "source": "formula",
        }
        return table("memory", [{**common, **row} for row in self.terms])


def inference_memory(
    model: Model, serving: Serving | None = None, layout: Layout | None = None, cluster: Cluster | None = None
) -> InferenceMemory:
    """Predict what an inference engine needs on a rank, and what its pool holds.

    Parameters
    ----------
    model
        What is served.
    serving
        The load and the engine; its defaults if left out.
    layout
        Ranks that share it: tp, pp, dp replicas of attention, ep, cp; one rank if left out.
    cluster
        The machines; the fewest nodes of eight H100 if left out.

    Notes
    -----
    Prediction, by vLLM's accounting: the pool is utilisation · memory less weights, the peak of a step,
    context, communicators and graphs. Balanced routing; no speculative decoding, no vision tower.

    Raises
    ------
    ValueError
        If the layout cannot serve the model, or the sequences are longer than its learned positions; the
        message says what would work.
    """
    serving, layout = serving or Serving(), layout or Layout()
    cluster = cluster or smallest_cluster(layout.world)
    check_layout(model, layout, cluster)
    check_length(model, "prompt", serving.prompt, serving.output)
    layers = check_stages(model, layout)
    tokens = step_tokens(serving, cluster.gpu)
    stages = tuple(
        stage_of(model, serving, layout, cluster.gpu, tokens, number, layers) for number in range(len(layers))
    )
    return InferenceMemory(model=model, serving=serving, layout=layout, cluster=cluster, stages=stages)
