"""`playbook schedule`: the idle time and the memory of a pipeline schedule."""

from typing import Annotated

import typer

from playbook.cli.options import Json
from playbook.cli.output import write_json, write_pairs
from playbook.units import percent, significant


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command()(schedule)


def schedule(
    name: Annotated[str, typer.Argument(help="Schedule, or path of a CSV file with each rank's actions.")],
    stages: Annotated[int | None, typer.Option(help="Pipeline ranks p.")] = None,
    microbatches: Annotated[int | None, typer.Option(help="Micro-batches m of a step.")] = None,
    chunks: Annotated[int | None, typer.Option(help="Stages that each rank owns.")] = None,
    forward: Annotated[float, typer.Option(help="Cost of a chunk's forward, in any unit.")] = 1.0,
    backward_input: Annotated[
        float, typer.Option(help="Cost of its backward for the input, same unit.")
    ] = 1.0,
    backward_weight: Annotated[
        float, typer.Option(help="Cost of its backward for the weights, same unit.")
    ] = 1.0,
    comm: Annotated[float, typer.Option(help="Delay between ranks, same unit; occupies neither.")] = 0.0,
    framework: Annotated[str | None, typer.Option(help="Apply this framework's conditions too.")] = None,
    json: Json = False,
) -> None:
    """Time a pipeline schedule: makespan, idle time in both conventions, stage-chunks alive."""
    from playbook.program.schedule import schedule as make
    from playbook.spec.rules import not_negative

    costs = {
        "forward": forward,
        "backward_input": backward_input,
        "backward_weight": backward_weight,
        "comm": comm,
    }
    made = make(name, stages, microbatches, chunks, framework)
    timed = made.simulate(**{option: not_negative(option, cost) for option, cost in costs.items()})
    if json:
        keys = ("makespan", "idle_over_makespan", "idle_over_ideal", "span_idle", "peak_live")
        write_json({key: getattr(timed, key) for key in keys})
        return
    write_pairs(
        [
            ("schedule", f"{made.name}, p = {made.stages}, m = {made.microbatches}, chunks {made.chunks}"),
            ("makespan", f"{significant(timed.makespan)} cost units"),
            ("idle / makespan", percent(timed.idle_over_makespan)),
            ("idle / ideal", percent(timed.idle_over_ideal)),
            ("longest idle inside a rank's span", f"{significant(timed.span_idle)} cost units"),
            ("stage-chunks alive, by rank", " ".join(str(live) for live in timed.peak_live)),
            ("warm-up forwards, by rank", " ".join(str(count) for count in made.warmup)),
        ]
    )
    if made.note:
        typer.echo(f"note: {made.note}")
    typer.echo("source: simulated")
