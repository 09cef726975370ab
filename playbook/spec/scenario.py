"""A scenario: model, workload, layout, cluster and framework, checked together."""

import json
import math
from dataclasses import dataclass, field
from typing import Any

from playbook.spec import copy
from playbook.spec.cluster import Cluster, smallest_cluster
from playbook.spec.degrees import check_context, check_experts, check_pieces
from playbook.spec.layout import Layout
from playbook.spec.model import Model
from playbook.spec.recipe import Recipe, recipe
from playbook.spec.rules import choice, divides, divisors, settle
from playbook.spec.stage_layers import uneven
from playbook.spec.vocabulary import pads_vocabulary
from playbook.spec.workload import Workload

PREDICTED = ("textbook", "torch", "transformers", "megatron", "deepspeed", "torchtitan", "nanotron")
"""Frameworks whose memory is predicted: what a misspelt name is answered with."""

FRAMEWORKS = (
    *PREDICTED,
    *(
        "llm-foundry",
        "accelerate",
        "picotron",
        "colossalai",
        "horovod",
        "torchrun",
        "vllm",
        "sglang",
        "tensorrt-llm",
    ),
)


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is predicted, traced and run.

    Parameters
    ----------
    model, workload, layout
        What is trained, on what, and how ranks share it.
    cluster
        The machines; None is the fewest nodes of eight H100 that hold the world.
    framework
        Whose accounting: one of `PREDICTED`; the others of `FRAMEWORKS` have a name and no numbers yet.

    Raises
    ------
    ValueError
        If the parts do not fit together; the message says what would.
    """

    model: Model
    workload: Workload = field(default_factory=Workload)
    layout: Layout = field(default_factory=Layout)
    cluster: Cluster = None  # type: ignore[assignment]  # None is replaced at once
    framework: str = field(default="textbook", kw_only=True)

    def __post_init__(self) -> None:
        for name, kind in (("model", Model), ("workload", Workload), ("layout", Layout)):
            if not isinstance(getattr(self, name), kind):
                raise TypeError(f"{name}={getattr(self, name)!r} must be a {kind.__name__}")
        named = isinstance(self.framework, str) and self.framework.strip().lower() in FRAMEWORKS
        settle(self, framework=choice("framework", self.framework, FRAMEWORKS if named else PREDICTED))
        if self.cluster is None:
            settle(self, cluster=smallest_cluster(self.layout.world))
        if not isinstance(self.cluster, Cluster):
            raise TypeError(f"cluster={self.cluster!r} must be a Cluster, or left out")
        check_world(self.layout, self.cluster)
        check_tensor_parallel(self.model, self.layout, padded=pads_vocabulary(self.framework))
        check_stages(self.model, self.layout)
        check_sequence(self.model, self.workload, self.layout)
        check_context(self.model, self.layout)
        check_experts(self.model, self.layout)
        self.microbatches  # noqa: B018  # refuses a batch that does not divide

    @property
    def world(self) -> int:
        """Ranks of the job."""
        return self.layout.world

    @property
    def recipe(self) -> Recipe:
        """The workload's numeric recipe."""
        return recipe(self.workload.recipe)

    @property
    def global_batch(self) -> int:
        """Sequences per optimizer step; by default one micro-batch a pipeline stage and replica."""
        if self.workload.global_batch is not None:
            return self.workload.global_batch
        return self.layout.dp * self.workload.micro_batch * self.layout.pp

    @property
    def microbatches(self) -> int:
        """Micro-batches per replica and step: global_batch / (dp · micro_batch), a whole number."""
        per_pass = self.layout.dp * self.workload.micro_batch
        if self.global_batch % per_pass:
            low = self.global_batch // per_pass * per_pass
            near = " or ".join(str(batch) for batch in (low, low + per_pass) if batch)
            raise ValueError(
                f"global_batch={self.global_batch} is not a multiple of dp={self.layout.dp} x micro_batch="
                f"{self.workload.micro_batch} = {per_pass}; use global_batch={near}"
            )
        return self.global_batch // per_pass

    @property
    def stage_layers(self) -> tuple[int, ...]:
        """Layers of every stage in order of depth."""
        if self.layout.stage_layers is not None:
            return self.layout.stage_layers
        return (self.model.layers // self.layout.stages,) * self.layout.stages

    def to_json(self) -> str:
        """Return the scenario as JSON text, every field written out."""
        return json.dumps(copy.to_dict(self), indent=2, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str | dict[str, Any]) -> "Scenario":
        """Read a scenario from JSON text, or from what it holds."""
        return copy.from_dict(text if isinstance(text, dict) else copy.parse(text))

    def as_python(self) -> str:
        """Return Python code that makes this scenario, naming what differs from the defaults."""
        return copy.as_python(self)

    def as_command(self, command: str = "memory") -> str:
        """Return the `playbook` command for this scenario, naming what differs from the defaults."""
        return copy.as_command(self, command)


def check_world(layout: Layout, cluster: Cluster) -> None:
    """Refuse a world that the cluster has not the GPUs for."""
    if layout.world <= cluster.gpus or cluster.shared:
        return
    used = " x ".join(f"{axis}={degree}" for axis, degree in layout.axes if degree > 1)
    raise ValueError(
        f"{used} = {layout.world} ranks but cluster {cluster.name} has {cluster.gpus} "
        f"GPU{'s' * (cluster.gpus > 1)}; "
        f"use degrees whose product is at most {cluster.gpus}, or a cluster of {layout.world} GPUs"
    )


def check_tensor_parallel(model: Model, layout: Layout, padded: bool = False) -> None:
    """Refuse a TP degree that does not divide heads, feed-forward features and, unless it is padded, the
    vocabulary."""
    tp, heads = layout.tp, model.kv_heads
    wide = (("heads", model.heads), ("ffn", model.ffn if dense(model) else 0))
    shared = model.moe.shared_ffn if model.moe is not None else 0
    wide = (*wide, ("shared_ffn", shared), ("vocabulary", 0 if padded else model.vocabulary))
    sizes = [(name, size) for name, size in wide if size]
    works = [d for d in divisors(math.gcd(*(size for _, size in sizes))) if kv_fits(d, heads)]
    for name, size in sizes:
        if size % tp:
            refuse_tp(model, tp, f"does not divide {name}={size}", works)
    if not kv_fits(tp, heads):
        refuse_tp(model, tp, f"neither divides kv_heads={heads} nor is a multiple of it", works)


def dense(model: Model) -> bool:
    """Tell whether some layer has a dense feed-forward part."""
    return model.moe is None or not all(model.moe.in_layer(layer) for layer in model.kinds)


def kv_fits(tp: int, kv_heads: int) -> bool:
    """Tell whether each rank has whole key-value heads, or each head a whole number of ranks that copy it."""
    return kv_heads % tp == 0 or tp % kv_heads == 0


def refuse_tp(model: Model, tp: int, why: str, works: list[int]) -> None:
    """Raise the error that lists the TP degrees of a model."""
    raise ValueError(f"tp={tp} {why} of {model.name}; tp in {', '.join(map(str, works))} would work")


def check_stages(model: Model, layout: Layout) -> None:
    """Refuse stages that do not add up to the model's layers."""
    if layout.stage_layers is not None:
        if sum(layout.stage_layers) != model.layers:
            raise ValueError(
                f"stage_layers add up to {sum(layout.stage_layers)} but {model.name} has {model.layers} "
                f"layers; give {layout.stages} numbers whose sum is {model.layers}"
            )
        return
    if layout.stages > model.layers:
        raise ValueError(
            f"pp={layout.pp} x chunks={layout.chunks} = {layout.stages} stages but {model.name} has "
            f"{model.layers} layer{'s' * (model.layers > 1)}; use at most {model.layers} "
            f"stage{'s' * (model.layers > 1)}"
        )
    if model.layers % layout.stages:
        dealt = ",".join(map(str, uneven(model.layers, layout.stages) or ()))
        works = ", ".join(str(d) for d in divisors(model.layers) if d <= 4 * layout.stages)
        raise ValueError(
            f"pp={layout.pp} x chunks={layout.chunks} = {layout.stages} stages do not divide layers="
            f"{model.layers} of {model.name}; use {works} stages, or uneven ones: stage_layers={dealt}"
        )


def check_sequence(model: Model, workload: Workload, layout: Layout) -> None:
    """Refuse a sequence that the model cannot take or the ranks cannot cut equally."""
    if model.positions and workload.sequence > model.positions:
        raise ValueError(
            f"sequence={workload.sequence} but {model.name} has {model.positions} learned positions; "
            f"use sequence={model.positions} or less"
        )
    check_pieces(workload.sequence, layout)
    if layout.sequence_parallel:
        if layout.tp == 1:
            raise ValueError("sequence_parallel=True but tp=1; it splits among TP ranks, so use tp=2 or more")
        divides("tp x cp", layout.tp * layout.cp, "sequence", workload.sequence)
