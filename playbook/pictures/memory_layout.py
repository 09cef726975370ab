"""What a memory picture's controls say of the pipeline, as fields of a layout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from playbook.pictures.pipeline_orders import takes_chunks, title_of
from playbook.program.schedule import schedule as schedule_of
from playbook.schedules import find_plan
from playbook.spec.stage_layers import read_stage_layers, uneven


def pipeline_fields(layers: int, *, pp: int, schedule: str, chunks: int, stage_layers: str) -> dict[str, Any]:
    """Fields of `playbook.Layout` that only a pipeline has; none with one pipeline rank.

    Parameters
    ----------
    layers
        The model's.
    pp
        Pipeline ranks.
    schedule
        One of the twelve, or the path of a CSV file with an order.
    chunks
        Chunks of a rank, for a schedule that takes any number.
    stage_layers
        Layers of each stage as text; without any, equal ones, or dealt out where they do not divide.

    Raises
    ------
    ValueError
        For a schedule that is none, also where it would not count, and for layers that are no numbers.
    """
    name = schedule if from_file(schedule) else find_plan(schedule).name
    if pp == 1:
        return {}
    held = chunks_of(name, chunks)
    given = read_stage_layers(stage_layers)
    return {
        "pp": pp,
        "schedule": name,
        "chunks": held,
        "stage_layers": given or uneven(layers, pp * held),
    }


def chunks_of(name: str, chunks: int) -> int:
    """Chunks that a rank holds: as many as asked for, where the schedule takes any number of them."""
    if from_file(name):
        return schedule_of(name).chunks
    return chunks if takes_chunks(name) else find_plan(name).default_chunks


def asks_for_chunks(name: str) -> bool:
    """Whether a control for chunks has a use."""
    return not from_file(name) and takes_chunks(name)


def schedule_words(name: str) -> str:
    """A schedule as papers write it; of a file, its name.

    Examples
    --------
    >>> schedule_words("zbv"), schedule_words("orders/mine.csv")
    ('ZB-V', 'mine.csv')
    """
    return Path(name).name if from_file(name) else title_of(name)


def from_file(name: str) -> bool:
    """Whether a schedule is a file's."""
    return name.lower().endswith(".csv")
