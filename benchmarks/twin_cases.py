"""The grid of scenarios whose twins are held against their prediction, most telling first.

Committed before it was measured, in four parts: the mixtures of experts and five more were added when the
first 54 had been, those where axes meet when the first 66 had been, pipelines under sequence parallelism when
72 had been. Models keep their true width; those too
large for seconds keep few layers.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import playbook as pb

MIXED = "fsdp2-mixed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One scenario and the rank that is taken.

    Parameters
    ----------
    model, layers
        Preset, and how many of its layers; None is all.
    layout, work
        Fields of `Layout` and `Workload`.
    rank
        Whose twin.
    framework
        "torch" is the reference transformer, "transformers" Hugging Face's code.
    network, repeats
        Whether collectives take the modelled time; timed steps, with the network and without.
    chapter
        Chapter whose table shows it; none if empty.
    """

    model: str
    layers: int | None = None
    layout: dict[str, Any] = field(default_factory=dict)
    work: dict[str, Any] = field(default_factory=dict)
    rank: int = 0
    framework: str = "torch"
    network: str = "modelled"
    repeats: int = 2
    chapter: str = ""

    @property
    def scenario(self) -> pb.Scenario:
        """The scenario, on H200 nodes."""
        model = pb.model(self.model)
        if self.layers is not None:
            model = replace(model, name=f"{self.layers} layers of {model.name}", layers=self.layers)
        layout = pb.Layout(**self.layout)
        cluster = pb.cluster(f"{-(-layout.world // 8)}x8-h200")
        return pb.Scenario(model, pb.Workload(**self.work), layout, cluster, framework=self.framework)


def ddp(model: str, dp: int, rank: int, layers: int | None = None, **work: Any) -> Case:
    """Replicas of the reference transformer."""
    return Case(model=model, layers=layers, layout={"dp": dp}, rank=rank, work=work)


def fsdp(
    model: str, dp: int, rank: int, layers: int | None = None, reshard: bool = True, **work: Any
) -> Case:
    """The reference transformer under FSDP2."""
    layout = {"dp": dp, "zero": 3, "reshard": reshard}
    return Case(model=model, layers=layers, layout=layout, rank=rank, work={"recipe": MIXED, **work})


def hugging(
    model: str, dp: int, rank: int, layers: int | None = None, reshard: bool = True, **work: Any
) -> Case:
    """Hugging Face's code under FSDP2."""
    return replace(fsdp(model, dp, rank, layers, reshard, **work), framework="transformers")


def split(
    model: str, tp: int, rank: int, layers: int | None = None, dp: int = 1, sp: bool = False, **work: Any
) -> Case:
    """The reference transformer under tensor parallelism, with FSDP2 outside where dp is more than 1."""
    layout = {"tp": tp, "dp": dp, "sequence_parallel": sp, "zero": 3 if dp > 1 else 0}
    return Case(model=model, layers=layers, layout=layout, rank=rank, work=work)


def staged(
    model: str,
    pp: int,
    rank: int,
    layers: int,
    schedule: str = "1f1b",
    chunks: int | None = None,
    **work: Any,
) -> Case:
    """A rank of a pipeline of the reference transformer."""
    layout = {"pp": pp, "schedule": schedule, "chunks": chunks}
    return Case(model=model, layers=layers, layout=layout, rank=rank, work=work)


def shared(model: str, dp: int, rank: int, layers: int | None = None, **work: Any) -> Case:
    """Replicas that share the optimizer's state."""
    return Case(model=model, layers=layers, layout={"dp": dp, "zero": 1}, rank=rank, work=work)


def shown(model: str, dp: int, rank: int, **work: Any) -> Case:
    """A twin of chapter 01's table: whole models, whose collectives take no time, since steps of the largest
    would be minutes."""
    return replace(fsdp(model, dp, rank, **work), network="off", repeats=1, chapter="01")


SEQUENCES = {"sequence_parallel": True}


def crossed(layout: dict[str, Any], rank: int, layers: int = 16, **work: Any) -> Case:
    """Llama 3.1 8B where two axes meet, or a split backward computes its forward again."""
    return Case(
        model="llama-3.1-8b",
        layers=layers,
        layout=layout,
        rank=rank,
        work={"micro_batch": 1, "sequence": 4096, "recipe": "bf16", **work},
    )


LATE: dict[str, Any] = {"gradient_sync": "last"}

BESIDE_OTHERS = (
    crossed({"pp": 4, "dp": 8, "zero": 3}, 1, global_batch=64, recompute="full", **LATE, recipe=MIXED),
    crossed({"pp": 4, "dp": 8, "zero": 3}, 31, global_batch=64, **LATE, recipe=MIXED),
    crossed({"dp": 2, "tp": 4}, 5, layers=8),
    crossed({"pp": 4, "dp": 2, "tp": 2}, 0, global_batch=16, **LATE),
    crossed({"pp": 4, "schedule": "zb-h1"}, 3, global_batch=8, recompute="full"),
    crossed({"pp": 4, "schedule": "zbv", "chunks": 2}, 0, global_batch=8, recompute="full"),
)

SHARES_HANDED_ON = (
    crossed({"pp": 2, "tp": 2, **SEQUENCES}, 2, layers=8, global_batch=4),
    crossed({"pp": 2, "tp": 4, "dp": 2, "zero": 3, **SEQUENCES}, 9, layers=8, recipe=MIXED, **LATE),
    replace(
        crossed({"pp": 4, "tp": 8, "schedule": "interleaved-1f1b", "chunks": 2, **SEQUENCES}, 17),
        model="llama-3.1-70b",
    ),
    replace(crossed({"pp": 8, "tp": 8, **SEQUENCES}, 0, recompute="full"), model="llama-3.1-70b"),
    replace(crossed({"pp": 16, "tp": 8, **SEQUENCES}, 127), model="llama-3.1-405b"),
)
"""Pipelines under tensor and sequence parallelism, whose stages hand on a rank's share of the stream."""

CASES: tuple[Case, ...] = (
    shown("llama-3.1-70b", 64, 0, sequence=4096, recompute="full"),
    shown("llama-3.1-405b", 1024, 1023, sequence=1024, recompute="full"),
    shown("llama-3.1-8b", 64, 63, sequence=4096, recompute="full"),
    shown("llama-3.2-1b", 8, 3, sequence=4096, micro_batch=2, recompute="full"),
    shown("smollm2-135m", 8, 5, sequence=2048, micro_batch=4),
    fsdp("llama-3.2-1b", 8, 0, micro_batch=2, sequence=2048),
    ddp("llama-3.2-1b", 8, 0, micro_batch=2, sequence=2048, recipe="fp32"),
    hugging("llama-3.2-1b", 8, 3, micro_batch=2, sequence=2048),
    fsdp("llama-3.1-70b", 512, 511, layers=4, micro_batch=1, sequence=4096),
    ddp("llama-3.2-1b", 1024, 777, micro_batch=4, sequence=1024),
    hugging("llama-3.1-8b", 64, 63, layers=8, micro_batch=1, sequence=4096, recompute="full"),
    split("llama-3.1-8b", 8, 5, layers=8, micro_batch=2, sequence=4096, sp=True),
    fsdp("llama-3.2-1b", 8, 7, reshard=False, micro_batch=2, sequence=2048),
    hugging("qwen3-0.6b", 16, 1, micro_batch=4, sequence=1024),
    split("llama-3.1-8b", 4, 9, layers=8, dp=16, sp=True, sequence=4096, recipe=MIXED),
    ddp("qwen3-0.6b", 4, 1, micro_batch=4, sequence=2048, recompute="full"),
    fsdp("qwen3-8b", 32, 31, layers=8, micro_batch=2, sequence=4096, recompute="full"),
    hugging("mistral-7b-v0.3", 128, 100, layers=6, micro_batch=2, sequence=4096),
    fsdp("llama-3.1-8b", 1024, 1023, layers=8, micro_batch=1, sequence=8192),
    ddp("llama-3.2-1b", 2, 1, micro_batch=2, sequence=4096, global_batch=16),
    hugging("qwen2.5-7b", 8, 7, layers=6, micro_batch=2, sequence=4096, recompute="full"),
    split("llama-3.2-3b", 2, 1, layers=14, micro_batch=2, sequence=2048, recipe="bf16"),
    fsdp("llama-3.2-1b", 3, 2, micro_batch=2, sequence=2048, global_batch=24),
    hugging("llama-3.1-8b", 8, 0, layers=4, reshard=False, micro_batch=4, sequence=2048),
    fsdp("llama-3.1-8b", 2, 1, layers=8, micro_batch=4, sequence=2048, recipe="bf16"),
    ddp("llama-3.1-8b", 8, 2, layers=4, micro_batch=1, sequence=8192, recipe="bf16"),
    hugging("qwen3-8b", 256, 17, layers=6, micro_batch=1, sequence=8192, global_batch=1024),
    split("llama-3.1-70b", 8, 7, layers=4, micro_batch=1, sequence=8192, sp=True, recompute="full"),
    fsdp("mistral-7b-v0.3", 16, 8, layers=8, micro_batch=1, sequence=4096, global_batch=48),
    staged("llama-3.1-8b", 4, 0, 16, micro_batch=1, sequence=4096, global_batch=8, recipe="bf16"),
    shared("llama-3.2-1b", 8, 5, micro_batch=2, sequence=2048, recipe="bf16"),
    staged("llama-3.1-8b", 4, 3, 16, micro_batch=1, sequence=4096, global_batch=8, recipe="bf16"),
    shared("llama-3.1-8b", 64, 63, layers=4, micro_batch=1, sequence=4096),
    staged("llama-3.1-8b", 2, 1, 8, "interleaved-1f1b", 2, micro_batch=1, sequence=4096, global_batch=4),
    hugging("llama-3.1-70b", 256, 255, layers=2, micro_batch=1, sequence=4096),
    fsdp("llama-3.1-405b", 1024, 5, layers=1, micro_batch=1, sequence=4096),
    split("qwen3-8b", 8, 3, layers=6, micro_batch=2, sequence=4096, recipe="bf16"),
    hugging("smollm2-135m", 64, 40, micro_batch=8, sequence=2048),
    ddp("mistral-7b-v0.1", 16, 9, layers=3, micro_batch=2, sequence=4096, recipe="fp32"),
    hugging("llama-3.2-3b", 8, 4, layers=14, micro_batch=2, sequence=4096, reshard=False),
    split("llama-3.1-70b", 8, 100, layers=4, dp=16, sp=True, sequence=8192, recipe=MIXED),
    staged("llama-3.1-8b", 4, 1, 16, "gpipe", micro_batch=1, sequence=2048, global_batch=8, recipe="bf16"),
    fsdp("qwen2.5-7b", 8, 6, layers=8, micro_batch=1, sequence=4096, recompute="full", global_batch=16),
    hugging("tinyllama-1.1b", 1024, 1000, micro_batch=4, sequence=2048),
    shared("qwen3-0.6b", 4, 0, micro_batch=4, sequence=2048, recompute="full", recipe="fp32"),
    ddp("tinyllama-1.1b", 256, 255, micro_batch=4, sequence=2048, recipe="bf16", global_batch=4096),
    hugging("qwen3-8b", 8, 2, layers=12, micro_batch=4, sequence=2048, recompute="full"),
    split("mistral-7b-v0.3", 2, 0, layers=8, micro_batch=1, sequence=8192, sp=True, recipe="bf16"),
    fsdp("llama-3.1-70b", 64, 1, layers=6, micro_batch=1, sequence=8192, recompute="full"),
    hugging("mistral-7b-v0.3", 32, 31, layers=8, micro_batch=1, sequence=16384, recompute="full"),
    staged("qwen3-8b", 2, 0, 8, "zbv", micro_batch=1, sequence=4096, global_batch=4, recipe="bf16"),
    split("llama-3.1-8b", 2, 3, layers=8, dp=4, sequence=4096, recipe=MIXED, global_batch=8),
    fsdp("llama-3.2-3b", 8, 3, micro_batch=1, sequence=4096),
    ddp("qwen3-0.6b", 1, 0, micro_batch=4, sequence=2048, recipe="bf16", global_batch=8),
    hugging("qwen3-30b-a3b", 64, 40, micro_batch=1, sequence=4096, recompute="full"),
    hugging("mixtral-8x7b", 8, 7, layers=2, micro_batch=1, sequence=4096),
    hugging("qwen3-30b-a3b", 16, 3, layers=12, micro_batch=2, sequence=4096),
    hugging("mixtral-8x7b", 16, 9, layers=2, micro_batch=2, sequence=4096, recompute="full"),
    hugging("mixtral-8x7b", 64, 9, layers=2, micro_batch=1, sequence=4096),
    hugging("qwen3-30b-a3b", 128, 100, layers=8, reshard=False, micro_batch=1, sequence=8192),
    hugging("mixtral-8x22b", 8, 0, layers=1, micro_batch=2, sequence=4096, global_batch=32),
    ddp("llama-3.1-8b", 4, 3, layers=2, micro_batch=2, sequence=4096, recipe="fp32"),
    fsdp("llama-3.1-8b", 8, 3, layers=4, micro_batch=2, sequence=2048, attention="math"),
    fsdp("qwen3-8b", 32, 5, layers=8, micro_batch=2, sequence=4096, recompute="selective"),
    split(
        *("llama-3.1-8b", 4, 1),
        layers=8,
        sequence=4096,
        attention="math",
        recompute="selective",
        recipe="bf16",
    ),
    staged("llama-3.1-8b", 4, 0, 16, "zb-h1", micro_batch=1, sequence=4096, global_batch=8, recipe="bf16"),
    *BESIDE_OTHERS,
    *SHARES_HANDED_ON,
)
