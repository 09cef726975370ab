"""What a twin can run, and whether it fits the GPU that is there."""

from dataclasses import replace

from playbook.frameworks import torch as torch_policy
from playbook.predict import training_memory
from playbook.predict.unbuilt import refuse_unbuilt
from playbook.spec import Scenario
from playbook.spec.rules import choice
from playbook.units import gb

NETWORKS = ("modelled", "off")
FRAMEWORKS = ("torch", "textbook", "transformers")
AXES = ("tp", "dp", "pp")


def check_twin(s: Scenario, network: str) -> str:
    """Refuse what no twin runs, and return the network's name.

    Raises
    ------
    ValueError
        With what it could run.
    """
    if s.framework not in FRAMEWORKS:
        raise ValueError(
            f"framework={s.framework!r}: a twin runs the reference transformer or Hugging Face's code; use "
            f"framework={' or '.join(map(repr, FRAMEWORKS))}"
        )
    found = choice("network", network, NETWORKS)
    refuse_unbuilt(as_run(s))
    for axis, degree in s.layout.axes:
        if degree > 1 and axis not in AXES:
            raise ValueError(f"{axis}={degree}: twins have {', '.join(AXES)} axes so far; use {axis}=1")
    if s.layout.ep > 1 or s.layout.dp_replicate > 1:
        raise ValueError(
            f"ep={s.layout.ep}, dp_replicate={s.layout.dp_replicate}: no code for ranks yet; use ep=1 and "
            "dp_replicate=1"
        )
    if s.framework != "transformers":
        check_transformer(s)
    return found


def check_transformer(s: Scenario) -> None:
    """Refuse layouts that the reference transformer's code does not have."""
    torch_policy.refuse(s, elsewhere="")
    layout = s.layout
    if layout.tp > 1 and layout.dp > 1 and layout.zero < 3:
        raise ValueError(
            f"dp={layout.dp} x tp={layout.tp} with zero={layout.zero}: DistributedDataParallel does not take "
            "DTensor's parameters; use zero=3"
        )
    if layout.pp > 1 and layout.dp * layout.tp > 1:
        raise ValueError(
            f"pp={layout.pp} with dp={layout.dp} and tp={layout.tp}: a twin's pipeline rank is alone in its "
            "stage so far; use dp=1 and tp=1"
        )
    if layout.tp > s.model.kv_heads:
        raise ValueError(
            f"tp={layout.tp} but {s.model.name} has {s.model.kv_heads} key-value heads, which DTensor splits "
            f"evenly; use tp={s.model.kv_heads} or less"
        )


def as_run(s: Scenario) -> Scenario:
    """The scenario as a twin runs it: torch's accounting in place of the textbook's, on a GPU's kernels."""
    framework = "transformers" if s.framework == "transformers" else "torch"
    return replace(s, framework=framework, workload=replace(s.workload, kernels="cuda"))


def worst_rank(s: Scenario) -> int:
    """The rank that needs most, as predicted."""
    return training_memory(as_run(s)).worst_rank["rank"]


def check_room(s: Scenario, rank: int, free_bytes: int) -> None:
    """Refuse a step whose predicted peak is more than what is free.

    Raises
    ------
    ValueError
        With the need and what would make it smaller.
    """
    need = training_memory(as_run(s), rank=rank)
    if need.peak_bytes > free_bytes:
        raise ValueError(
            f"rank {rank} needs {gb(need.peak_bytes)} at {need.instant} (predicted) but {gb(free_bytes)} of "
            "this GPU are free; use fewer layers, a smaller micro-batch, recompute='full' or more ranks, or "
            "pb.trace, which needs no GPU"
        )
