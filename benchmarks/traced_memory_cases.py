"""Scenarios on which predicted memory is held against traced memory, chosen before any of them was compared.

They spread over strategies and their combinations, models of 15 M to 405 B parameters, recipes, recompute,
optimizer kernels, micro-batches, shards that do not divide, worlds of 1 to 1024 ranks and ranks in their
middle. Single precision with grouped heads takes CPU kernels: CUDA computes it by the math kernel, which the
formula says it does not count.
"""

from dataclasses import dataclass, field
from typing import Any

from playbook.spec import Layout, Scenario, Workload, model


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One rank of one scenario.

    Parameters
    ----------
    model
        Preset.
    rank
        Which rank of the world.
    microbatches
        Per replica and step.
    workload, layout
        Fields of both that are not the default.
    """

    model: str
    rank: int
    microbatches: int = 1
    workload: dict[str, Any] = field(default_factory=dict)
    layout: dict[str, Any] = field(default_factory=dict)

    @property
    def scenario(self) -> Scenario:
        """The scenario, under framework "torch"."""
        layout = Layout(**self.layout)
        size = self.workload.get("micro_batch", 1)
        batch = layout.dp * size * self.microbatches
        workload = Workload(global_batch=batch, **self.workload)
        return Scenario(model(self.model), workload, layout, framework="torch")


def case(name: str, rank: int, microbatches: int, workload: dict[str, Any], **layout: Any) -> Case:
    """One case: model, rank, micro-batches, fields of the workload, fields of the layout."""
    return Case(model=name, rank=rank, microbatches=microbatches, workload=workload, layout=layout)


def work(recipe: str, sequence: int, recompute: str = "none", **more: Any) -> dict[str, Any]:
    """Fields of a workload."""
    return {"recipe": recipe, "sequence": sequence, "recompute": recompute, **more}


MASTERS, MIXED = "bf16-fp32master", "fsdp2-mixed"
SP = {"sequence_parallel": True}

CASES: dict[str, Case] = {
    # Replicas.
    "ddp, tied, FP32": case("smollm2-135m", 3, 2, work("fp32", 1024, micro_batch=4, kernels="cpu"), dp=8),
    "ddp, late": case(
        "tinyllama-1.1b", 63, 4, work("bf16", 2048, micro_batch=2, gradient_sync="last"), dp=64
    ),
    "ddp of 1024, masters": case("qwen3-0.6b", 1000, 1, work(MASTERS, 4096), dp=1024),
    "ddp, SGD, recompute": case("llama-3.1-8b", 0, 1, work("sgd", 8192, "full"), dp=16),
    # Replicas that share the optimizer's state.
    "zero1, masters, tied": case("llama-3.2-1b", 5, 2, work(MASTERS, 4096), dp=8, zero=1),
    "zero1, recompute": case("mistral-7b-v0.3", 17, 1, work("bf16", 8192, "full"), dp=64, zero=1),
    "zero1, more ranks than weights": case("qwen2.5-7b", 400, 1, work(MASTERS, 4096), dp=512, zero=1),
    # Shards.
    "fsdp2, mixed": case("llama-3.1-8b", 0, 1, work(MIXED, 4096), dp=8, zero=3),
    "fsdp2 of 512, mixed, recompute": case(
        "llama-3.1-70b", 300, 1, work(MIXED, 8192, "full"), dp=512, zero=3
    ),
    "fsdp2, uneven": case("llama-2-7b", 99, 2, work("bf16", 4096, micro_batch=2), dp=100, zero=3),
    "fsdp2, kept, late, uneven": case(
        "qwen2.5-32b", 95, 2, work(MIXED, 4096, "full", gradient_sync="last"), dp=96, zero=3, reshard=False
    ),
    "fsdp2 of 1024, mixed, recompute": case(
        "llama-3.1-405b", 777, 1, work(MIXED, 8192, "full"), dp=1024, zero=3
    ),
    "fsdp2, masters, for-loop, CPU": case(
        "qwen3-8b", 23, 1, work(MASTERS, 4096, kernels="cpu", optimizer_kernel="for-loop"), dp=24, zero=3
    ),
    "fsdp2 of one rank": case(
        "llama-3.2-3b", 0, 2, work("fp32", 1024, kernels="cpu", optimizer_kernel="foreach"), zero=3
    ),
    # Split products.
    "tp": case("llama-2-7b", 3, 1, work("bf16", 4096), tp=8),
    "tp, sequence parallel, masters": case("llama-3.1-8b", 7, 2, work(MASTERS, 8192), tp=8, **SP),
    "tp, sequence parallel, recompute": case("qwen2.5-14b", 2, 1, work("bf16", 8192, "full"), tp=4, **SP),
    "tp and fsdp2": case("llama-3.1-70b", 77, 1, work("bf16", 8192, "full"), tp=8, dp=16, zero=3, **SP),
    "tp and fsdp2 of 512": case(
        "llama-3.1-405b", 511, 1, work("bf16", 8192, "full"), tp=8, dp=64, zero=3, **SP
    ),
    "tp and ddp": case("tinyllama-1.1b", 5, 2, work("bf16", 2048), tp=2, dp=4),
    "tp and ddp, sequence parallel": case("mistral-nemo-12b", 31, 1, work("bf16", 4096), tp=4, dp=8, **SP),
    "tp and fsdp2, tied, masters": case("llama-3.2-1b", 30, 1, work(MASTERS, 4096), tp=4, dp=8, zero=3),
    # Stages.
    "pp, last stage": case("tinyllama-1.1b", 1, 8, work("bf16", 2048), pp=2),
    "pp, first stage": case("llama-2-7b", 0, 8, work("bf16", 4096), pp=4),
    "pp, recompute": case("llama-3.1-8b", 5, 16, work("bf16", 8192, "full"), pp=8),
    "pp, interleaved": case(
        "mistral-7b-v0.1", 3, 8, work("bf16", 4096), pp=4, chunks=2, schedule="interleaved-1f1b"
    ),
    "pp, uneven stages": case(
        "llama-3.1-70b", 7, 8, work("bf16", 4096, "full"), pp=8, stage_layers=(9, 10, 10, 10, 10, 10, 11, 10)
    ),
    "pp, split backward": case("qwen2.5-7b", 2, 8, work("bf16", 4096), pp=4, schedule="zb-h1"),
    "pp, V": case("llama-3.1-8b", 3, 8, work("bf16", 4096), pp=4, schedule="zbv"),
    "pp, split backward, recompute": case(
        "qwen2.5-7b", 2, 8, work("bf16", 4096, "full"), pp=4, schedule="zb-h1"
    ),
    "pp, V, recompute": case("llama-3.1-8b", 0, 8, work("bf16", 4096, "full"), pp=4, schedule="zbv"),
    "pp, backwards in one and in two, recompute": case(
        "tinyllama-1.1b",
        1,
        8,
        work("bf16", 2048, "full"),
        pp=2,
        schedule="dualpipe-v",
        stage_layers=(6, 6, 5, 5),
    ),
    "pp, gpipe, FP32": case("toy-15m", 1, 4, work("fp32", 512, kernels="cpu"), pp=3, schedule="gpipe"),
    "pp and tp": case("llama-3.1-70b", 17, 8, work("bf16", 4096, "full"), pp=4, tp=8),
    "pp and tp, split backward": case("llama-2-7b", 15, 8, work("bf16", 4096), pp=4, tp=4, schedule="zb-h1"),
    "pp, tp and zero1, interleaved, masters": case(
        "llama-2-7b",
        5,
        8,
        work(MASTERS, 4096, gradient_sync="last"),
        pp=4,
        tp=2,
        dp=2,
        zero=1,
        chunks=2,
        schedule="interleaved-1f1b",
    ),
    "pp, optimizer above all else, recompute": case(
        "qwen2.5-7b",
        0,
        8,
        work(MASTERS, 2048, "full"),
        pp=4,
        chunks=2,
        schedule="looped-bfs",
        stage_layers=(3, 3, 3, 3, 4, 4, 4, 4),
    ),
    "pp and ddp, late": case("qwen3-8b", 6, 4, work("bf16", 4096, gradient_sync="last"), pp=2, dp=4),
    "pp and fsdp2, late": case(
        "llama-3.1-8b", 20, 8, work("bf16", 4096, gradient_sync="last"), pp=4, dp=8, zero=3
    ),
}
