"""What a twin can run, and whether it fits the GPU that is there."""

import sys
from dataclasses import replace
from pathlib import Path

from playbook.frameworks import torch as torch_policy
from playbook.predict import training_memory
from playbook.predict.unbuilt import refuse_unbuilt
from playbook.runtime.trace_scope import check_traceable
from playbook.spec import Scenario
from playbook.spec.rules import choice
from playbook.strategies import plan
from playbook.strategies.pp.plan import LIBRARY_SCHEDULES
from playbook.units import gb

NETWORKS = ("modelled", "off")
FRAMEWORKS = ("torch", "textbook", "transformers")
AXES = ("tp", "dp", "pp")
GPU_FILES = ("nvidia*", "nvmap", "dxg", "kfd")
"""Files under /dev of a driver: NVIDIA's, that of its boards, of Windows' subsystem, AMD's."""

NO_GPU = (
    "there is no GPU that torch can use here, and a twin runs real kernels; pb.trace (in a terminal "
    "`playbook trace`) runs the same step on fake tensors, without one"
)


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
    refuse_unbuilt(as_run(s), others=False)
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


def check_gpu() -> None:
    """Refuse at once where Linux shows no GPU; elsewhere, and where it shows one, torch has the word.

    Raises
    ------
    ValueError
        With what runs without a GPU.
    """
    shown = (found for pattern in GPU_FILES for found in Path("/dev").glob(pattern))
    if sys.platform == "linux" and next(shown, None) is None:
        raise ValueError(NO_GPU)


def check_transformer(s: Scenario) -> None:
    """Refuse layouts that the reference transformer's code does not have."""
    layout = s.layout
    if by_library(s):
        check_traceable(as_run(s))  # both run the library's code
    elif layout.dp * layout.tp > 1:
        raise ValueError(
            f"schedule={layout.schedule} with dp={layout.dp} and tp={layout.tp}: the library does not have "
            f"it, and our own loop has no other axis; use dp=1 and tp=1, or {', '.join(LIBRARY_SCHEDULES)}"
        )
    else:
        torch_policy.refuse(s)
        plan("pp").refuse_run(s, True)


def by_library(s: Scenario) -> bool:
    """Whether torch's own code runs all of it."""
    return s.layout.pp == 1 or s.layout.schedule in LIBRARY_SCHEDULES


def as_run(s: Scenario) -> Scenario:
    """The scenario as a twin runs it: torch's accounting in place of the textbook's, on a GPU's kernels.

    An order that torch does not have runs by hand, so that the textbook's stays.
    """
    framework = "transformers" if s.framework == "transformers" else "torch"
    if framework == "torch" and not by_library(s):
        framework = "textbook"
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
            "pb.trace (in a terminal `playbook trace`), which needs no GPU"
        )
