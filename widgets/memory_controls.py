"""What the controls of MemoryExplorer offer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from playbook.frameworks import policies
from playbook.pictures.models import model_choices
from playbook.spec import Scenario, presets
from playbook.units import thousands

if TYPE_CHECKING:
    from playbook.pictures.memory_view import MemoryView

RANKS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
DEGREES = (1, 2, 4, 8, 16, 32, 64)
AXES = "More axes"
"""Fold of the degrees that a first look leaves at 1."""
SEQUENCES = (512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)
FRAMEWORKS = {
    "torch": "PyTorch",
    "transformers": "Hugging Face",
    "megatron": "Megatron-LM",
    "deepspeed": "DeepSpeed",
    "nanotron": "Nanotron",
    "torchtitan": "torchtitan",
    "textbook": "the papers (textbook)",
}
"""Words for those that may be there, in their order; what is there is what the folder holds."""
PASTED = "Not in use: the pasted config.json is the model."
STOOD_IN = "Not in use: the papers' accounting is drawn in its place; the line under the buttons says why."


def options(view: MemoryView | None, tp: int, config: str, model: str) -> dict[str, Any]:
    """What controls say of the picture, and those that it has no use for.

    A pasted configuration puts the preset out of use. A framework that is stood in for and a sequence that
    is cut keep their controls: another choice may be drawn as it is. A model that is no preset, such as the
    path of a file, stands above the presets.
    """
    made: dict[str, Any] = {"model": {"idle": PASTED}} if config.strip() else {}
    if model not in presets.names("models"):
        made.setdefault("model", {})["options"] = [[model, Path(model).name], *map(list, model_choices())]
    if tp == 1:
        made["sequence_parallel"] = None
    if view is not None and view.asked:
        made["framework"] = {"remark": STOOD_IN}
    if view is not None and view.cut_from:
        made["sequence"] = {"remark": f"Drawn with {thousands(view.model.positions)}, the model's positions."}
    return made


def remark(view: MemoryView, words: str, refused: bool) -> str:
    """Line under the buttons: whose accounting stands in and why, or what Run does."""
    if not view.asked:
        return words
    why, _, _ = view.note.partition(";")
    note = f"Drawn by the papers' accounting in place of {FRAMEWORKS.get(view.asked, view.asked)}: {why}"
    return f"{note}. {words}" if refused else note


def frameworks() -> list[tuple[str, str]]:
    """Name and words of every framework that is there."""
    return [one for one in FRAMEWORKS.items() if one[0] in policies()]


def refusal(check: Callable[[Scenario], None], scenario: Scenario) -> str:
    """Why a scenario is refused, in words; empty if it is not."""
    try:
        check(scenario)
    except ValueError as refused:
        return str(refused)
    return ""
