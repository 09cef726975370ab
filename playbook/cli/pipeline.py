"""`playbook schedule`: the idle time and the memory of a pipeline schedule."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from playbook.cli.options import Json
from playbook.cli.output import write_json, write_pairs
from playbook.cli.pipeline_options import with_costs
from playbook.units import number, percent, seconds

if TYPE_CHECKING:
    from playbook.program.schedule import Schedule
    from playbook.program.simulation import Simulation

NAME = "Schedule (an unknown name lists them), or path of a CSV file with each rank's actions."
KEYS = (
    *("makespan", "idle_over_makespan", "idle_over_ideal", "span_idle", "peak_live"),
    *("ideal", "idle", "exposed_communication"),
)


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command()(with_costs(schedule))


def schedule(
    name: Annotated[str, typer.Argument(help=NAME)],
    stages: Annotated[int | None, typer.Option(help="Pipeline ranks p.")] = None,
    microbatches: Annotated[int | None, typer.Option(help="Micro-batches m of a step.")] = None,
    chunks: Annotated[int | None, typer.Option(help="Stages that each rank owns.")] = None,
    framework: Annotated[
        str | None, typer.Option(help="Refuse what this framework refuses, such as torch or megatron.")
    ] = None,
    order_csv: Annotated[Path | None, typer.Option(help="Write the order here, as torch reads it.")] = None,
    chrome_trace: Annotated[Path | None, typer.Option(help="Write a trace for Perfetto here.")] = None,
    timeline_csv: Annotated[Path | None, typer.Option(help="Write the timeline table here.")] = None,
    json: Json = False,
    *,
    options: dict[str, Any],
) -> None:
    """Time a pipeline schedule: makespan, idle time, memory.

    Idle time in both conventions, memory in stage-chunks alive. Example: playbook schedule 1f1b --stages 4
    --microbatches 16
    """
    from playbook.program.schedule import schedule as make

    _check_sizes(name, stages, microbatches)
    made = make(name, stages, microbatches, chunks, framework)
    timed = made.simulate(**options)
    if order_csv:
        made.to_csv(order_csv)
    if chrome_trace:
        timed.to_chrome_trace(chrome_trace)
    if timeline_csv:
        timed.to_csv(timeline_csv)
    if json:
        write_json({key: getattr(timed, key) for key in KEYS})
        return
    write_pairs([*_described(made), *_measures(made, timed, options), *_formula(made, options)])
    for note in _notes(made, options):
        typer.echo(f"note: {note}")
    typer.echo("source: simulated")


def _check_sizes(name: str, stages: int | None, microbatches: int | None) -> None:
    """Ask for missing sizes in the words of the command line."""
    for what, value in (("stages", stages), ("microbatches", microbatches)):
        if value is None and not name.lower().endswith(".csv"):
            raise ValueError(
                f"{what} is missing; give --{what}, as in: schedule 1f1b --stages 4 --microbatches 16"
            )


def _described(made: "Schedule") -> list[tuple[str, str]]:
    words = made.placement_words
    if len(words) > 8:
        words = (*words[:2], "…", words[-1])
    return [
        ("schedule", f"{made.name}, p = {made.stages}, m = {made.microbatches}, chunks {made.chunks}"),
        ("placement", "; ".join(words)),
    ]


def _measures(made: "Schedule", timed: "Simulation", options: dict[str, Any]) -> list[tuple[str, str]]:
    # What rounding leaves of sums is no idle time.
    span_idle, *exposed = (
        0.0 if time < 1e-9 * timed.makespan else time
        for time in (timed.span_idle, *timed.exposed_communication)
    )
    waits = " ".join(seconds(time, number) if _in_seconds(options) else number(time) for time in exposed)
    return [
        ("makespan", f"{_time(timed.makespan, options)}{_in_whole_stages(made, timed, options)}"),
        ("idle / makespan", percent(timed.idle_over_makespan)),
        ("idle / ideal", percent(timed.idle_over_ideal)),
        ("longest idle inside a rank's span", _time(span_idle, options)),
        ("idle while a message is under way, by rank", waits),
        ("stage-chunks alive, by rank", " ".join(str(live) for live in timed.peak_live)),
    ]


def _in_seconds(options: dict[str, Any]) -> bool:
    """Tell whether costs are seconds: with a link they have to be."""
    return options["link"] is not None


def _time(value: float, options: dict[str, Any]) -> str:
    return seconds(value, number) if _in_seconds(options) else f"{number(value)} cost units"


def _in_whole_stages(made: "Schedule", timed: "Simulation", options: dict[str, Any]) -> str:
    """Say what a makespan in costs of a chunk is beside that of a schedule with one stage a rank."""
    if made.chunks == 1 or _in_seconds(options) or any(isinstance(cost, list) for cost in options.values()):
        return ""
    whole = number(timed.makespan / made.chunks)
    return f" (a chunk is 1/{made.chunks} of a rank's layers: {whole} in costs of a whole stage)"


def _formula(made: "Schedule", options: dict[str, Any]) -> list[tuple[str, str]]:
    """The textbook's idle time, with its value where stages are equal and both backwards agree."""
    from playbook.schedules import plans

    pairs = [("warm-up forwards, by rank", " ".join(str(count) for count in made.warmup))]
    plan, costs = plans().get(made.name), chunk_costs(options)
    if plan is None:
        return pairs
    value = ""
    if costs is not None:
        idle = plan.idle(made.stages, made.microbatches, made.chunks, costs)
        value = f" = {_time(idle, options)}"
    return [*pairs, ("idle by formula, no communication", f"{plan.idle_text}{value}")]


def chunk_costs(options: dict[str, Any]) -> Any:
    """The costs that formulas know, or None where stages differ, or recomputation or stragglers come in."""
    from playbook.schedules.plan import ChunkCosts

    names = ("forward", "backward_input", "backward_weight", "overlap")
    given: dict[str, Any] = {name: options.get(name) for name in names}
    unknown = options["recompute"] != 0 or options["stragglers"] or options.get("backward") is not None
    if unknown or any(isinstance(cost, list) for cost in given.values()):
        return None
    return ChunkCosts(**given)


def _notes(made: "Schedule", options: dict[str, Any]) -> list[str]:
    from playbook.schedules import plans

    plan, costs = plans().get(made.name), chunk_costs(options)
    about_costs = plan.cost_note(costs) if plan is not None and costs is not None else None
    return [note for note in (made.note, about_costs, *_without_effect(made, options)) if note]


def _without_effect(made: "Schedule", options: dict[str, Any]) -> list[str]:
    from playbook.schedules.packed import B, is_beside, unpack

    found = []
    if options.get("overlap") is not None and not any(is_beside(order).any() for order in made.packed):
        found.append(f"--overlap has no effect: {made.name} has no overlapped pairs")
    if options.get("backward") is not None and not any(
        (unpack(order)[1] == B).any() for order in made.packed
    ):
        found.append(
            f"--backward has no effect: {made.name} runs every backward in two parts; "
            f"give --backward-input and --backward-weight"
        )
    return found
