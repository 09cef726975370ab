"""The same schedules for a real model: seconds, and gigabytes against the memory of a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from playbook.pictures.pipeline_orders import TimedOrder, check_count, takes_chunks, title_of
from playbook.pictures.pipeline_setting import Setting
from playbook.planner import cut_stages
from playbook.predict.pipeline import pipeline_timeline
from playbook.program.simulation import Simulation
from playbook.schedules import find_plan
from playbook.spec import Layout, Model, Scenario, Workload, model
from playbook.spec.cluster import smallest_cluster
from playbook.units import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Sized:
    """A preset with the split inside a stage that lets a pipeline of it fit."""

    tp: int
    sequence: int


MODELS = {
    "toy-15m": Sized(tp=1, sequence=512),
    "llama-3.1-8b": Sized(tp=1, sequence=4096),
    "llama-3.1-70b": Sized(tp=8, sequence=4096),
}
"""Models that can be chosen; 70B has eight tensor-parallel ranks a stage, as on one node."""

CUTS = {"equal": "equal layers", "balanced": "balanced by time"}
"""Cuts of a model's layers, and how they read."""


@lru_cache(maxsize=8)
def _model(name: str) -> Model:
    return model(name)


@lru_cache(maxsize=64)
def model_order(name: str, schedule: str, setting: Setting, gpu: str, balanced: bool) -> TimedOrder:
    """Predict a step of a model under one schedule.

    Parameters
    ----------
    name
        One of `MODELS`.
    schedule
        Of the folder.
    setting
        Its ranks, micro-batches, chunks and whether backward computes again; costs come from the model.
    gpu
        Preset.
    balanced
        Whether layers are shared out by `cut_stages` rather than equally.

    Raises
    ------
    ValueError
        For a size that model or schedule refuses.
    """
    scenario = scenario_of(name, schedule, setting, gpu, balanced)
    found = pipeline_timeline(scenario)
    return TimedOrder(
        order=found.order,
        timed=found.timed,
        model=found,
        model_words=model_words(name),
        gpu_words=gpu.upper(),
        message_bytes=float(found.message_bytes.max()),
        hop=_hop(found.timed),
    )


def scenario_of(name: str, schedule: str, setting: Setting, gpu: str, balanced: bool = False) -> Scenario:
    """The scenario of a pipeline of a model: one replica, one sequence a micro-batch.

    Raises
    ------
    ValueError
        If it does not fit together, in words.
    """
    if name not in MODELS:
        raise ValueError(f"model={name!r}: use units, or one of {', '.join(MODELS)}")
    sized, spec, p = MODELS[name], _model(name), setting.stages
    plan = find_plan(schedule)
    chunks = setting.chunks if takes_chunks(schedule) else plan.default_chunks
    reason = plan.refuse(p, setting.microbatches, chunks)
    if reason:
        raise ValueError(reason)
    if spec.layers < p * chunks:
        raise ValueError(
            f"{name} has {counted(spec.layers, 'layer')} for {p * chunks} stages; use fewer ranks or chunks"
        )
    made = Scenario(
        spec,
        Workload(
            sequence=sized.sequence,
            global_batch=setting.microbatches,
            recompute="full" if setting.costs.recompute else "none",
        ),
        Layout(
            pp=p,
            tp=sized.tp,
            schedule=schedule,
            chunks=chunks,
            stage_layers=equal_layers(spec.layers, p * chunks),
        ),
        smallest_cluster(p * sized.tp, gpu),
    )
    return _balanced(made) if balanced else made


@lru_cache(maxsize=32)
def _balanced(scenario: Scenario) -> Scenario:
    """The same with the layers shared out so that the slowest stage is as fast as can be."""
    layers = cut_stages(scenario).stage_layers
    return replace(scenario, layout=replace(scenario.layout, stage_layers=layers))


def equal_layers(layers: int, stages: int) -> tuple[int, ...]:
    """As many layers on each stage; the first ones have one more where it does not divide."""
    low, more = divmod(layers, stages)
    return tuple(low + (stage < more) for stage in range(stages))


def _hop(timed: Simulation) -> float:
    """Seconds of a message on its way: the most that any action waited for one under way."""
    return float(timed.in_flight.max(initial=0.0))


def model_words(name: str) -> str:
    """A model and what each of its stages is."""
    sized = MODELS[name]
    inside = f", TP {sized.tp}" if sized.tp > 1 else ""
    return f"{name}{inside}, {counted(sized.sequence, 'token')}"


def model_orders(
    names: Sequence[str], model_name: str, setting: Setting, gpu: str, balanced: bool = False
) -> tuple[TimedOrder, ...]:
    """Predict a model's step under each schedule, on one clock.

    Raises
    ------
    ValueError
        For no names or too many, an order of the user's, or a size that is refused.
    """
    check_count(names)
    return tuple(model_order(model_name, _known(name), setting, gpu, balanced) for name in names)


def _known(name: str) -> str:
    try:
        return find_plan(name).name
    except ValueError:
        raise ValueError(
            f"{title_of(name)} is an order of yours: a model's seconds are known for schedules by name; "
            "choose units to see it"
        ) from None
