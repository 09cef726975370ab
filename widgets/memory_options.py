"""What the controls and the note of MemoryExplorer say of its picture."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from playbook.pictures.memory_layout import asks_for_chunks, schedule_words
from playbook.pictures.models import model_choices
from playbook.pictures.pipeline_orders import TITLES
from playbook.spec import Scenario, presets
from playbook.units import thousands
from widgets.memory_controls import FRAMEWORKS

if TYPE_CHECKING:
    from playbook.pictures.memory_view import MemoryView

PASTED = "Not in use: the pasted config.json is the model."
STOOD_IN = "Not in use: the papers' accounting is drawn in its place; the line under the buttons says why."
LATE = "PyTorch's pipelines reduce gradients behind the last micro-batch, as is drawn."
ADVICE = re.compile(r"; (?:use|it runs|give) ")
"""Where a refusal goes on with what would work, which would leave the framework that is asked about."""
BLAMED = {
    "schedule": ("has no schedule ", "schedule="),
    "attention": ("attention=",),
    "loss": ("loss=",),
}
"""Controls whose choice a framework may not have, and by what its refusal names them."""
OF_PIPELINES = ("schedule", "chunks", "stage_layers")
"""Controls that count from two pipeline ranks on."""


def options(view: MemoryView | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """What controls say of the picture, and those that it has no use for.

    A pasted configuration puts the preset out of use. A framework that is stood in for and a sequence that
    is cut keep their controls: another choice may be drawn as it is. A model that is no preset and a schedule
    that is none of the twelve, such as paths of files, stand above the others.
    """
    made: dict[str, Any] = {"model": {"idle": PASTED}} if given["config"].strip() else {}
    if given["model"] not in presets.names("models"):
        own = [given["model"], Path(given["model"]).name]
        made.setdefault("model", {})["options"] = [own, *map(list, model_choices())]
    if given["tp"] == 1:
        made["sequence_parallel"] = None
    made |= of_pipelines(given["pp"], given["schedule"])
    return made if view is None else made | remarks(view, given, made)


def remarks(view: MemoryView, given: Mapping[str, Any], made: Mapping[str, Any]) -> dict[str, Any]:
    """What is drawn where a control leaves it open or asks for something else."""
    found: dict[str, Any] = {}
    if view.cut_from:
        words = f"Drawn with {thousands(view.model.positions)}, the model's positions."
        found["sequence"] = {"remark": words}
    if view.scenario.layout.pp == given["pp"] > 1 and not given["stage_layers"].strip():
        found["stage_layers"] = {"remark": f"Empty: {dealt_words(view.scenario.stage_layers)}."}
    if view.scenario.workload.gradient_sync == "last":
        found["microbatches"] = {"remark": LATE}
    return found | (stood_in(view, made) if view.asked else {})


def stood_in(view: MemoryView, made: Mapping[str, Any]) -> dict[str, Any]:
    """Remarks where the papers' accounting stands in: on the framework, and on the choice that it has not.

    A choice that changes the accounting too cannot be compared with the one before it.
    """
    why = ADVICE.split(view.note)[0]
    asked = FRAMEWORKS.get(view.asked, view.asked)
    lacking = f"Not counted for {asked}: to compare, choose the papers as framework."
    blamed = next((name for name, marks in BLAMED.items() if any(mark in why for mark in marks)), None)
    found: dict[str, Any] = {"framework": {"remark": STOOD_IN}}
    if blamed is not None:
        options = made.get(blamed)
        found[blamed] = {"remark": lacking} | ({"options": options} if options else {})
    return found


def of_pipelines(pp: int, schedule: str) -> dict[str, Any]:
    """What the schedule's controls offer: nothing without a pipeline, chunks only where it asks for them."""
    if pp == 1:
        return dict.fromkeys(OF_PIPELINES)
    made: dict[str, Any] = {}
    if schedule not in TITLES:
        made["schedule"] = [[schedule, schedule_words(schedule)], *map(list, TITLES.items())]
    if schedule not in TITLES or not asks_for_chunks(schedule):
        made["chunks"] = None
    return made


def dealt_words(layers: Sequence[int]) -> str:
    """Layers of each stage where none are asked for.

    Examples
    --------
    >>> dealt_words((20, 20, 20, 20)), dealt_words((16, 15, 15, 15))
    ('20 in each of 4 stages', '16 or 15 in each of 4 stages')
    """
    return f"{' or '.join(map(str, dict.fromkeys(layers)))} in each of {len(layers)} stages"


def remark(view: MemoryView, words: str, refused: bool) -> str:
    """Line under the buttons: whose accounting stands in and why, or what Run does."""
    if not view.asked:
        return words
    why = ADVICE.split(view.note)[0]
    note = f"Drawn by the papers' accounting in place of {FRAMEWORKS.get(view.asked, view.asked)}: {why}"
    return f"{note}. {words}" if refused else note


def refusal(check: Callable[[Scenario], None], scenario: Scenario) -> str:
    """Why a scenario is refused, in words; empty if it is not."""
    try:
        check(scenario)
    except ValueError as refused:
        return str(refused)
    return ""
