"""`playbook cut-stages`: which layers go to which pipeline stage."""

import inspect
import math
from collections.abc import Callable
from typing import Annotated, Any

import typer

from playbook.cli.options import behind_model, build_scenario, with_scenario
from playbook.cli.output import write_json, write_table
from playbook.spec import Layout, Scenario, model
from playbook.units import GB, counted, gb, seconds

KEYS = (
    *("stage_layers", "seconds", "rank_seconds", "bytes", "proven"),
    *("equal_layers", "equal_seconds", "equal_rank_seconds", "equal_bytes"),
    *("step_seconds", "equal_step_seconds"),
)


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command("cut-stages")(with_cap(cut_stages))


def cut_stages(scenario: Scenario, memory_cap_gb: float | None, as_json: bool) -> None:
    """Cut layers into stages so that the slowest is fastest.

    Beside it stands the equal cut. Example: playbook cut-stages --model llama-3.1-8b --pp 4
    """
    from playbook.planner import cut_stages as cut
    from playbook.planner.capped_cut import NoCutFits

    try:
        found = cut(scenario, memory_cap_bytes=None if memory_cap_gb is None else memory_cap_gb * GB)
    except NoCutFits as none:
        # Rounded up, so that what is advised is enough.
        enough = math.ceil(none.needed_bytes / GB * 10) / 10
        raise ValueError(
            f"--memory-cap-gb {memory_cap_gb:g}: {none.told}; use --memory-cap-gb {enough:.1f} or more, more "
            f"stages, or recomputation"
        ) from None
    if as_json:
        write_json({key: getattr(found, key) for key in KEYS})
        return
    rows = (
        (
            str(row["stage"]),
            str(row["rank"]),
            str(row["layers"]),
            seconds(row["seconds"]),
            gb(row["rank_bytes"]),
            str(row["equal_layers"]),
            seconds(row["equal_seconds"]),
            gb(row["equal_rank_bytes"]),
        )
        for row in found.table.to_dict("records")
    )
    header = ("stage", "rank", "layers", "time", "on its rank", "equal cut", "time", "on its rank")
    write_table(header, rows, words=())
    typer.echo(repr(found))
    typer.echo("source: formula")


def with_cap(command: Callable[[Scenario, float | None, bool], None]) -> Callable[..., None]:
    """Give a command a scenario's options without `rank`, and the cap; stages need not divide the layers."""

    def call(**given: Any) -> None:
        cap, as_json = given.pop("memory_cap_gb"), given.pop("json")
        if given["stage_layers"] is not None:
            raise ValueError(
                f"--stage-layers {given['stage_layers']}: this command finds each stage's layers itself; "
                f"leave it out here, or see what that cut holds with `playbook memory --stage-layers "
                f"{given['stage_layers']}`"
            )
        given["stage_layers"] = uneven(given)
        command(build_scenario(given), cap, as_json)

    plain = inspect.signature(with_scenario(command)).parameters.values()
    option = Annotated[float | None, typer.Option("--memory-cap-gb", help="Most GB (10^9 bytes) on a rank.")]
    cap = inspect.Parameter("memory_cap_gb", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=option)
    parameters = behind_model((one for one in plain if one.name != "rank"), (cap,))
    call.__name__, call.__doc__ = command.__name__, command.__doc__
    call.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call


def uneven(given: dict[str, Any]) -> str:
    """As many layers on each stage as divides, in the option's form: where the search starts from."""
    from playbook.planner.least_cut import equal_cut

    layout = Layout(pp=given["pp"], schedule=given["schedule"], chunks=given["chunks"])
    layers = model(given["model"]).layers
    if layout.stages > layers:
        raise ValueError(
            f"pp={layout.pp} x chunks={layout.chunks} = {layout.stages} stages but {given['model']} has "
            f"{counted(layers, 'layer')}; use at most as many stages"
        )
    return ",".join(map(str, equal_cut(layers, layout.stages)))
