"""`playbook twin`: the real step of one rank of any world on this machine's GPU."""

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from playbook.cli.options import behind_model, with_scenario
from playbook.cli.output import write_json, write_pairs, write_table
from playbook.cli.predict import announce, real_code, summary
from playbook.cli.terms import both, write_terms
from playbook.spec import Scenario
from playbook.units import counted, gb, seconds, thousands

KEYS = (
    "peak_bytes",
    "reserved_bytes",
    "terms",
    "seconds",
    "rank",
    "exposed_seconds",
    "instants",
    "framework",
    "note",
)
OPTIONS = (
    ("network", str, "modelled", "modelled: collectives take the cluster's time; off: none."),
    (
        "build",
        str | None,
        None,
        "FILE.py:FUNCTION that returns your own nn.Module, to run in the model's place.",
    ),
)
FRAMEWORK = "Whose code runs: torch or transformers; textbook, which has none, is taken as torch."


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command(name="twin")(with_twin_options(twin))


def with_twin_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of a scenario and those of a twin."""

    def call(**given: Any) -> None:
        own = {name: given.pop(name) for name, *_ in OPTIONS}

        def taken(scenario: Scenario, rank: int | None, as_json: bool) -> None:
            command(scenario, rank, as_json, **own)

        with_scenario(taken)(**given)

    plain = inspect.signature(with_scenario(command, FRAMEWORK)).parameters.values()
    own = (
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=default,
            annotation=Annotated[kind, typer.Option(f"--{name}", help=text)],
        )
        for name, kind, default, text in OPTIONS
    )
    parameters = behind_model(plain, own)
    call.__name__, call.__doc__ = command.__name__, command.__doc__
    call.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call


def twin(scenario: Scenario, rank: int | None, as_json: bool, network: str, build: str | None) -> None:
    """Take one rank's real step on this machine's GPU.

    Memory by instant, seconds, communication. Example: playbook twin --model llama-3.2-1b --dp 8 --zero 3
    --sequence 2048
    """
    from playbook.predict.left_out import left_out
    from playbook.runtime.twin import twin as take_twin
    from playbook.runtime.twin_scope import as_run

    announce(f"taking the step of {build or scenario.model.name}, which takes seconds to a few minutes")
    found = take_twin(scenario, rank, network, build=build)
    ran, note = as_run(scenario), "" if build else left_out(scenario.model)
    if as_json:
        told = {"exposed_seconds": found.exposed_s, "framework": ran.framework, "note": note}
        write_json({key: told[key] if key in told else getattr(found, key) for key in KEYS})
        return
    place = ", ".join(f"{axis} {index}" for axis, index in found.coordinates.items())
    write_pairs(
        [
            ("scenario", summary(ran) if build is None else f"{build}, {counted(scenario.world, 'rank')}"),
            *(real_code(scenario) if ran.framework == "torch" else []),
            ("rank", f"{thousands(found.rank)} of {thousands(scenario.world)} ({place})"),
            ("peak allocated", f"{both(found.peak_bytes)} in {found.instant}"),
            ("reserved", gb(found.reserved_bytes)),
            ("step", f"{seconds(found.seconds)}, collectives as on {scenario.cluster.name}"),
            ("communication that nothing hides", seconds(found.exposed_s)),
            ("machine", found.machine),
        ]
    )
    typer.echo("")
    write_table(
        ("instant", "allocated", "reserved"),
        [(row["instant"], gb(row["allocated_bytes"]), gb(row["reserved_bytes"])) for row in found.instants],
    )
    typer.echo("")
    write_terms(found.terms, found.peak_bytes)
    typer.echo("source: twin")
    if note:
        typer.echo(f"note: {note}")
