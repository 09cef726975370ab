"""`playbook fit` and `playbook explain`: what fits, and what an allocation that failed was."""

import inspect
import re
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from playbook.cli.kv import DEFAULT_TOKENS, LEFT_OUT, write_end
from playbook.cli.lengths import length
from playbook.cli.options import behind_model, with_scenario
from playbook.cli.output import write_json, write_pairs, write_table
from playbook.cli.predict import summary
from playbook.spec import Scenario, Serving
from playbook.units import binary_size, counted, gb, percent, size, thousands

BELOW_ZERO = re.compile(r"-[0-9.]+\s*[kmgt]?i?b", re.IGNORECASE)
"""A negative size as it is typed, its unit with it."""

NEAREST = 12
"""Tensors that are printed."""


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command(name="fit")(with_more(fit, *FIT_OPTIONS))
    app.command(name="explain", cls=SizeCommand)(with_more(explain, SIZE_ARGUMENT))


class SizeCommand(TyperCommand):
    """A command whose argument is a size, so that one below 0 is no option that is not known."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuse a size below 0, then parse as ever."""
        for one in args:
            if BELOW_ZERO.fullmatch(one):
                raise ValueError(f"size={one!r} must be above 0; use {one[1:]}")
        return super().parse_args(ctx, args)


def more(name: str, kind: Any, default: Any, text: str) -> inspect.Parameter:
    """A further option of a command."""
    annotation = Annotated[kind, typer.Option(f"--{name.replace('_', '-')}", help=text)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


FIT_OPTIONS = (
    more("vary", str, "sequence", "What to find: sequence, micro-batch, layers, gpus or concurrency."),
    more(
        "serving", bool, False, "Ask about an inference engine, not training; --vary concurrency always does."
    ),
    more("prompt", int | None, None, f"Tokens of a prompt; {LEFT_OUT}."),
    more("output", int, 512, "Tokens of an answer."),
    more("concurrency", int, 64, "Sequences in the engine at once."),
    more("weights", str, "bf16", "Format of an engine's weights."),
    more("kv_dtype", str, "bf16", "Format of an engine's cache."),
    more("utilisation", float, 0.9, "Part of the memory that the engine may take."),
)
SIZE_ARGUMENT = inspect.Parameter(
    "amount",
    inspect.Parameter.KEYWORD_ONLY,
    annotation=Annotated[
        str, typer.Argument(metavar="SIZE", help="What could not be allocated, such as 49GiB.")
    ],
)


def with_more(command: Callable[..., Any], *extra: inspect.Parameter) -> Callable[..., Any]:
    """Give a command the options of a scenario and further ones."""

    def plain(scenario: Scenario, rank: int | None, as_json: bool) -> None:
        """Stand in for the signature."""

    def call(**given: Any) -> Any:
        own = {parameter.name: given.pop(parameter.name) for parameter in extra}

        def bound(scenario: Scenario, rank: int | None, as_json: bool) -> Any:
            return command(scenario, as_json=as_json, **own)

        return with_scenario(bound)(rank=None, **given)

    shared = [p for p in inspect.signature(with_scenario(plain)).parameters.values() if p.name != "rank"]
    parameters = behind_model(shared, extra)
    call.__name__, call.__doc__ = command.__name__, command.__doc__
    call.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call


def fit(scenario: Scenario, as_json: bool, vary: str, serving: bool, **load: Any) -> None:
    """Find the largest sequence, batch, depth or load that fits.

    Or the fewest GPUs. Example: playbook fit --model llama-3.1-70b --dp 64 --zero 3 --vary sequence
    """
    from playbook.predict.fit import fit as search

    engine = serving or vary.strip().lower() == "concurrency"
    if engine:
        load["prompt"] = length("prompt", load["prompt"], DEFAULT_TOKENS, scenario.model, load["output"])
    found = search(scenario, vary, serving=Serving(**load) if engine else None)
    if as_json:
        keys = ("vary", "value", "limit_bytes", "note")
        write_json({**{key: getattr(found, key) for key in keys}, "table": found.table})
        return
    best, gpu = found.best, scenario.cluster.gpu
    answer = found.words or "nothing fits"
    if best:
        free = size(found.limit_bytes - best.device_bytes)
        answer += f": {gb(best.device_bytes)} of {gb(found.limit_bytes)}, {gpu.name}, {free} free"
    asked = summary(scenario) if found.serving is None else load_summary(scenario, found.serving)
    write_pairs([("scenario", asked), ("fits", answer), ("note", found.note)])
    typer.echo("")
    rows = [
        (
            thousands(x.value),
            gb(x.device_bytes),
            size(found.limit_bytes - x.device_bytes),
            "yes" if x.fits else "no",
        )
        for x in found.tried
    ]
    write_table((found.vary.replace("_", "-"), "device", "free", "fits"), rows, words=(3,))
    typer.echo("source: formula")


def load_summary(scenario: Scenario, serving: Serving) -> str:
    """Return a serving load in one line."""
    split = [f"{axis} {degree}" for axis, degree in scenario.layout.axes if degree > 1]
    return (
        f"{scenario.model.name} in {serving.weights}, {' '.join(split) or 'one rank'}, "
        f"{counted(serving.concurrency, 'sequence')} of {thousands(serving.prompt)} + "
        f"{thousands(serving.output)} tokens, cache in {serving.kv_dtype}"
    )


def explain(scenario: Scenario, as_json: bool, amount: str) -> None:
    """Name the tensor whose allocation failed, by its size.

    Or the length at which a tensor would have it. Example: playbook explain 49GiB --model qwen3-30b-a3b
    --sequence 32768
    """
    from playbook.predict.explain import explain_allocation

    found = explain_allocation(amount, scenario)
    if as_json:
        keys = ("bytes", "sentence", "sequence", "micro_batch", "rows", "note")
        write_json({key: getattr(found, key) for key in keys})
        return
    write_pairs([("scenario", summary(scenario)), ("answer", found.sentence)])
    typer.echo("")
    rows = [
        (
            row["tensor"],
            row["instant"],
            binary_size(row["bytes"]),
            percent(row["difference"], signed=True),
            thousands(row["sequence"]) if row["sequence"] else "",
            row["formula"],
        )
        for row in found.rows[:NEAREST]
    ]
    write_table(("tensor", "born", "size", "off", "at sequence", "formula"), rows, words=(0, 1, 5))
    write_end(found.note)
