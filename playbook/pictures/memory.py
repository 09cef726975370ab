"""Training memory on one GPU.

State under each ZeRO stage, and one step over time, against what the driver reports.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from playbook.pictures.memory_groups import group_bytes
from playbook.pictures.memory_stages import stages_picture
from playbook.pictures.memory_step import step_picture
from playbook.pictures.memory_table import table_rows
from playbook.pictures.memory_view import MemoryView
from playbook.pictures.memory_warnings import warnings
from playbook.pictures.memory_words import bar_words, cut_words, headline, kick, layout_words, whose
from playbook.pictures.words import amount, bare
from playbook.predict import ZeroState
from playbook.units import gb

if TYPE_CHECKING:
    from playbook.pictures.memory_run import MeasuredMemory


def memory_picture(view: MemoryView, measured: MeasuredMemory | None = None) -> dict[str, Any]:
    """Picture data of one scenario.

    Parameters
    ----------
    view
        What `memory_view` made.
    measured
        Trace of this scenario and real step of a small one, as far as there are.
    """
    return {
        "kick": kick(view),
        "headline": headline(view),
        "bars": _bars(view),
        "step": step_picture(view),
        "terms": _terms(view),
        "stages": stages_picture(view.scenario, view.stages),
        "passes": _passes(view),
        "warnings": [*cut_words(view), *warnings(view.memory, view.states)],
        "table": table_rows(view, measured),
        "foot": "GB = 10⁹ bytes · capacity: what the driver reports",
    }


def _passes(view: MemoryView) -> dict[str, Any]:
    return {
        "title": [
            "One layer, before and after",
            "what each pass adds, and the layer's state, what its forward keeps, its largest buffer",
        ],
        "head": ["pass", "operations it adds", "state", "kept", "for a moment"],
        "rows": [step.row for step in view.passes],
    }


def _terms(view: MemoryView) -> dict[str, Any]:
    """Each term at the peak with its formula, for the numbers behind the picture."""
    found = [one for one in view.memory.terms if one["bytes"]]
    rows = [[one["term"].replace("_", " "), amount(one["bytes"]), one["formula"]] for one in found]
    return {
        "title": "At the peak and beyond the allocator",
        "head": ["term", "bytes", "formula"],
        "rows": rows,
    }


def _bars(view: MemoryView) -> dict[str, Any]:
    recipe = view.scenario.recipe
    optimizer = "optimizer with master weights" if recipe.master_bytes else "optimizer"
    rule = (
        f"parameters {recipe.parameter_bytes} B, gradients {recipe.gradient_bytes} B, "
        f"{optimizer} {recipe.optimizer_bytes} B per parameter"
    )
    gpu = view.scenario.cluster.gpu
    return {
        "title": [f"Model state {whose(view)}, {layout_words(view.scenario.layout)}", rule],
        "capacity": gpu.memory_bytes,
        "capacity_words": f"{gpu.name.upper()} {gb(gpu.memory_bytes)}",
        "rows": [_bar(state, view) for state in view.states],
        "chosen": view.zero,
    }


def _bar(state: ZeroState, view: MemoryView) -> dict[str, Any]:
    return {
        **bar_words(state, view.capacity_bytes),
        "copied": _parts(state.copied),
        "shared": _parts(state.shared),
        "total": state.total_bytes,
    }


def _parts(terms: Mapping[str, int]) -> list[list[Any]]:
    """Colour, bytes and their text, in the order of a bar: parameters, gradients, optimizer."""
    grouped = group_bytes(terms)
    return [
        [name, size, bare(size)]
        for name in ("parameters", "gradients", "optimizer")
        if (size := grouped[name])
    ]
