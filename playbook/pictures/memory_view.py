"""What is looked at: a training scenario of a few controls, and all that is predicted of it."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import lru_cache

from playbook.pictures.memory_layout import pipeline_fields
from playbook.pictures.memory_passes import LayerStep, layer_steps
from playbook.pictures.memory_states import rank_states
from playbook.predict import TrainingMemory, ZeroState, training_memory
from playbook.program.summary import RankMemory
from playbook.recorded import RecordedTwin, find_twin
from playbook.spec import Layout, Model, Scenario, Workload, model
from playbook.spec.cluster import smallest_cluster

BY_PYTORCH = ("torch", "torchtitan")
"""Frameworks whose pipelines are those of torch.distributed.pipelining."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryView:
    """What is looked at: a scenario, its memory, and the state of one rank under each ZeRO stage."""

    scenario: Scenario
    memory: TrainingMemory
    states: tuple[ZeroState, ...]
    stages: tuple[RankMemory, ...] = ()
    """Memory of every pipeline rank; none without a pipeline."""
    passes: tuple[LayerStep, ...] = ()
    """One layer before any pass and after each."""
    twin: RecordedTwin | None = None
    """Twin of the same step that was recorded on a GPU, if there is one."""
    asked: str = ""
    """Framework asked for where the textbook stands in for it; else empty."""
    note: str = ""
    """Why the textbook stands in; empty if it does not."""
    cut_from: int = 0
    """Tokens asked for where the model has fewer learned positions, which then are what is drawn; else 0."""

    @property
    def model(self) -> Model:
        """The model that is trained."""
        return self.scenario.model

    @property
    def zero(self) -> int:
        """ZeRO stage whose step is drawn."""
        return self.scenario.layout.zero

    @property
    def rank(self) -> int:
        """Rank whose step is drawn: the worst one."""
        return self.memory.worst_rank["rank"]

    @property
    def gpu(self) -> str:
        """The GPU as it is written."""
        return self.scenario.cluster.gpu.name.upper()

    @property
    def capacity_bytes(self) -> int:
        """Memory of the GPU as its driver reports it."""
        return self.scenario.cluster.gpu.memory_bytes


@lru_cache(maxsize=16)
def memory_view(
    model_name: str,
    *,
    ranks: int,
    zero: int,
    sequence: int,
    micro_batch: int,
    recipe: str,
    recompute: str,
    framework: str,
    gpu: str,
    tp: int = 1,
    pp: int = 1,
    cp: int = 1,
    ep: int = 1,
    microbatches: int = 0,
    config: str = "",
    sequence_parallel: bool = True,
    schedule: str = "1f1b",
    chunks: int = 2,
    stage_layers: str = "",
    attention: str = "flash",
    loss: str = "eager",
) -> MemoryView:
    """Predict a training step.

    Parameters
    ----------
    model_name
        Preset, or path of a configuration.
    ranks, zero
        Data-parallel ranks N and the ZeRO stage of the step.
    sequence, micro_batch, recipe, recompute
        As in `playbook.Workload`. Learned positions cap the sequence; `cut_from` says so.
    framework
        Whose buffers are counted. Where it has no such stage or recipe the textbook stands in, and `note`
        says so. PyTorch's pipelines reduce gradients behind the last micro-batch.
    gpu
        GPU preset.
    tp, pp, cp, ep
        As in `playbook.Layout`.
    microbatches
        Micro-batches of a step; 0 is as many as pipeline ranks.
    config
        Text of a Hugging Face `config.json`, which then is the model.
    sequence_parallel
        Whether tensor parallel ranks also split the norms' activations; without tensor parallelism none do.
    schedule, chunks, stage_layers
        Of a pipeline: one of the twelve schedules or a CSV file, chunks of a rank where the schedule takes
        any number, and layers of each stage as text. Without that text layers that the stages do not divide
        are dealt out unevenly.
    attention, loss
        As in `playbook.Workload`.

    Raises
    ------
    ValueError
        For values that no scenario can have.
    """
    shown = _model(model_name, config)
    drawn = min(sequence, shown.positions or sequence)
    cut_from = sequence if drawn < sequence else 0
    layout = Layout(
        dp=ranks,
        tp=tp,
        cp=cp,
        ep=ep,
        zero=zero,
        sequence_parallel=sequence_parallel and tp > 1,
        **pipeline_fields(shown.layers, pp=pp, schedule=schedule, chunks=chunks, stage_layers=stage_layers),
    )
    work = Workload(
        sequence=drawn,
        micro_batch=micro_batch,
        global_batch=ranks * micro_batch * (microbatches or pp),
        recipe=recipe,
        recompute=recompute,
        attention=attention,
        loss=loss,
    )
    cluster = smallest_cluster(layout.world, gpu)
    made = Scenario(shown, synchronised(work, layout, framework), layout, cluster, framework=framework)
    try:
        return _view_of(made, cut_from=cut_from)
    except ValueError as refused:
        if framework == "textbook":
            raise
        plain = Scenario(shown, work, layout, cluster, framework="textbook")
        return _view_of(plain, framework, str(refused), cut_from)


def synchronised(work: Workload, layout: Layout, framework: str) -> Workload:
    """A workload whose gradients are reduced when a framework reduces them (torch 2.13: `_PipelineSchedule`
    puts REDUCE_GRAD behind a stage's last backward)."""
    late = framework in BY_PYTORCH and layout.pp > 1 and layout.dp > 1
    return replace(work, gradient_sync="last") if late else work


def _view_of(s: Scenario, asked: str = "", note: str = "", cut_from: int = 0) -> MemoryView:
    memory = training_memory(s)
    return MemoryView(
        scenario=s,
        memory=memory,
        states=rank_states(s, memory.worst_rank["rank"]),
        stages=memory.pipeline,
        passes=tuple(layer_steps(s)),
        twin=find_twin(s, ranks_alike(s.layout, memory.worst_rank["pp"])),
        asked=asked,
        note=note,
        cut_from=cut_from,
    )


def ranks_alike(layout: Layout, pp_rank: int) -> range | None:
    """Ranks that hold what the worst one holds; None for all."""
    if layout.pp == 1:
        return None
    return range(layout.world)[layout.rank(pp=pp_rank) :][: layout.world // layout.pp]


@lru_cache(maxsize=64)
def _model(name: str, config: str) -> Model:
    if not config.strip():
        return model(name)
    try:
        given = json.loads(config)
    except ValueError as error:
        raise ValueError(
            f"config is not JSON ({error}); paste a whole config.json, or clear the field"
        ) from None
    if not isinstance(given, dict):
        raise ValueError(f"config is a {type(given).__name__}, not an object; paste a whole config.json")
    made = model(given)
    named = any(given.get(key) for key in ("_name_or_path", "name"))
    return made if named else replace(made, name=f"pasted {made.name}")
