"""`playbook find-schedule`: search an order for stages that are not equal, under a memory cap."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from playbook.cli.options import Json
from playbook.cli.output import write_json, write_table
from playbook.units import number, percent

if TYPE_CHECKING:
    from pandas import DataFrame

COST = "one number in any unit, or one a stage of the model, as in 1,1,1.5"


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command("find-schedule")(find_schedule)


def find_schedule(
    stages: Annotated[int, typer.Option(help="Pipeline ranks p.")],
    microbatches: Annotated[int, typer.Option(help="Micro-batches m of a step.")],
    chunks: Annotated[int, typer.Option(help="Stages of the model on each rank.")] = 1,
    forward: Annotated[str, typer.Option(help=f"Cost of a chunk's forward: {COST}.")] = "1",
    backward_input: Annotated[
        str, typer.Option(help="Cost of its backward for the input, given likewise.")
    ] = "1",
    backward_weight: Annotated[
        str, typer.Option(help="Cost of its backward for the weights, given likewise.")
    ] = "1",
    comm: Annotated[str, typer.Option(help="Delay between ranks; or one a border between stages.")] = "0",
    memory_cap: Annotated[
        str | None, typer.Option(help="Most stage-chunks alive on a rank; or one a rank, as in 4,4,3,3.")
    ] = None,
    split: Annotated[bool, typer.Option(help="Let a backward run in two parts.")] = True,
    copies: Annotated[int, typer.Option(help="Copies of the stages that ranks may hold together.")] = 2,
    csv: Annotated[
        Path | None, typer.Option(help="Write the order here, for `schedule` and `run pp`.")
    ] = None,
    json: Json = False,
) -> None:
    """Search the fastest order of a pipeline's actions.

    Beside it stand every known schedule and what no order beats. Example: playbook find-schedule --stages 4
    --microbatches 8 --forward 1,1,1,1.5 --memory-cap 3
    """
    from playbook.planner import find_schedule as search

    found = search(
        stages,
        microbatches,
        chunks=chunks,
        forward=numbers("forward", forward),
        backward_input=numbers("backward_input", backward_input),
        backward_weight=numbers("backward_weight", backward_weight),
        comm=numbers("comm", comm),
        memory_cap=None if memory_cap is None else wholes("memory_cap", memory_cap),
        split=split,
        copies=copies,
    )
    if csv is not None:
        found.schedule.to_csv(csv)
    if json:
        keys = ("makespan", "lower_bound", "gap")
        content = {key: getattr(found, key) for key in keys}
        write_json({**content, "peak_live": found.simulation.peak_live, "schedules": found.table})
        return
    write_schedules(found.table)
    typer.echo(repr(found))
    typer.echo("source: simulated")


def write_schedules(table: "DataFrame") -> None:
    """Print every known schedule and those found, one a line."""
    header = ("schedule", "stages lie", "copies", "makespan", "peak", "over the bound", "objection")
    rows = (
        (
            row["name"],
            row["placement"],
            str(row["copies"]),
            number(row["makespan"]),
            str(row["peak"]),
            "—" if math.isnan(row["gap"]) else percent(row["gap"], signed=True),
            row["objection"],
        )
        for row in table.to_dict("records")
    )
    write_table(header, rows, words=(0, 1, 6))


def numbers(name: str, text: str) -> float | list[float]:
    """Read one number, or several with commas between."""
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"{name}={text!r} is no number; use one, or one a place as in 1,1,1.5") from None
    return values[0] if len(values) == 1 else values


def wholes(name: str, text: str) -> int | list[int]:
    """Read one whole number, or several with commas between."""
    try:
        values = [int(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"{name}={text!r} is no whole number; use one, or one a rank as in 4,4,3") from None
    return values[0] if len(values) == 1 else values
