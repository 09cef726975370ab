"""`playbook fit` and `playbook explain`: what fits, and what an allocation that failed was."""

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from playbook.cli.options import with_scenario
from playbook.cli.output import write_json, write_pairs, write_table
from playbook.cli.predict import summary
from playbook.spec import Scenario, Serving
from playbook.spec.byte_sizes import read_size
from playbook.units import gb, gib, percent, thousands

NEAREST = 12
"""Tensors that are printed."""


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command(name="fit")(with_more(fit, *FIT_OPTIONS))
    app.command(name="explain")(with_more(explain, SIZE_ARGUMENT))


def more(name: str, kind: Any, default: Any, text: str) -> inspect.Parameter:
    """A further option of a command."""
    annotation = Annotated[kind, typer.Option(f"--{name.replace('_', '-')}", help=text)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


FIT_OPTIONS = (
    more("vary", str, "sequence", "sequence, micro_batch, layers, gpus or concurrency."),
    more("serving", bool, False, "Ask for an inference engine; vary concurrency always does."),
    more("prompt", int, 4096, "Tokens of a prompt."),
    more("output", int, 512, "Tokens of an answer."),
    more("concurrency", int, 64, "Sequences in the engine at once."),
    more("weights", str, "bf16", "Format of an engine's weights."),
    more("kv_dtype", str, "bf16", "Format of an engine's cache."),
    more("utilisation", float, 0.9, "Part of the memory that the engine may take."),
)
SIZE_ARGUMENT = inspect.Parameter(
    "size",
    inspect.Parameter.KEYWORD_ONLY,
    annotation=Annotated[str, typer.Argument(help="What could not be allocated, such as 49GiB.")],
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
    parameters = [*extra, *shared]
    call.__name__, call.__doc__ = command.__name__, command.__doc__
    call.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call


def fit(scenario: Scenario, as_json: bool, vary: str, serving: bool, **load: Any) -> None:
    """Find the largest sequence, micro-batch, depth or concurrency that fits, or the fewest GPUs."""
    from playbook.predict.fit import WORDS
    from playbook.predict.fit import fit as search

    engine = serving or vary.strip().lower() == "concurrency"
    found = search(scenario, vary, serving=Serving(**load) if engine else None)
    if as_json:
        keys = ("vary", "value", "limit_bytes", "note")
        write_json({**{key: getattr(found, key) for key in keys}, "table": found.table})
        return
    best, gpu = found.best, scenario.cluster.gpu
    answer = f"{thousands(best.value)} {WORDS[found.vary]}" if best else "nothing fits"
    if best:
        answer += f": {gb(best.device_bytes)} of {gb(found.limit_bytes)}, {gpu.name}"
    asked = summary(scenario) if found.serving is None else load_summary(scenario, found.serving)
    write_pairs([("scenario", asked), ("fits", answer), ("note", found.note)])
    typer.echo("")
    rows = [(thousands(x.value), gb(x.device_bytes), "yes" if x.fits else "no") for x in found.tried]
    write_table((found.vary.replace("_", "-"), "device", "fits"), rows, words=(2,))
    typer.echo("source: formula")


def load_summary(scenario: Scenario, serving: Serving) -> str:
    """Return a serving load in one line."""
    split = [f"{axis} {degree}" for axis, degree in scenario.layout.axes if degree > 1]
    return (
        f"{scenario.model.name} in {serving.weights}, {' '.join(split) or 'one rank'}, "
        f"{thousands(serving.concurrency)} sequences of {thousands(serving.prompt)} + "
        f"{thousands(serving.output)} tokens, cache in {serving.kv_dtype}"
    )


def explain(scenario: Scenario, as_json: bool, size: str) -> None:
    """Name the tensor that an allocation of this size was, or at which length it would be."""
    from playbook.predict.explain import explain_allocation

    found = explain_allocation(read_size(size), scenario)
    if as_json:
        keys = ("bytes", "sentence", "sequence", "micro_batch", "rows")
        write_json({key: getattr(found, key) for key in keys})
        return
    write_pairs([("scenario", summary(scenario)), ("answer", found.sentence)])
    typer.echo("")
    rows = [
        (
            row["tensor"],
            row["instant"],
            gib(row["bytes"]),
            percent(row["difference"], signed=True),
            thousands(row["sequence"]) if row["sequence"] else "",
            row["formula"],
        )
        for row in found.rows[:NEAREST]
    ]
    write_table(("tensor", "born", "size", "off", "at sequence", "formula"), rows, words=(0, 1, 5))
    typer.echo("source: formula")
