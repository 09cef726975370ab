"""`playbook run`: a strategy on real ranks, with its parity, traffic and memory."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from playbook.cli.options import Json
from playbook.cli.output import write_json, write_pairs
from playbook.units import counted, seconds, size, thousands

if TYPE_CHECKING:
    from playbook.runtime.run import Run

WHOLE = re.compile(r"-?\d+")
NUMBER = re.compile(r"-?\d*\.?\d+(e-?\d+)?")


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    settings = {"allow_extra_args": True, "ignore_unknown_options": True}
    app.command(context_settings=settings)(run)


def run(
    context: typer.Context,
    strategy: Annotated[
        str, typer.Argument(help="Strategy with code for ranks, such as ddp; an unknown name lists them.")
    ],
    ranks: Annotated[int | None, typer.Option(help="Ranks; the GPUs, or min(4, cores), if left out.")] = None,
    by: Annotated[str, typer.Option(help="Whose code: hand (the lessons') or library (PyTorch's).")] = "hand",
    backend: Annotated[
        str,
        typer.Option(
            help="What carries messages: auto, gloo, nccl or shared-gpu (ranks that share one GPU)."
        ),
    ] = "auto",
    json: Json = False,
) -> None:
    """Run a strategy on real ranks, held to one process.

    Its levers are options too, such as --microbatches 8; an unknown one lists them. Example: playbook run tp
    --ranks 2 --by library
    """
    from playbook.runtime.pool import Pool
    from playbook.spec.rules import choice
    from playbook.strategies import refuse_predicted_only, runnable

    refuse_predicted_only(strategy)
    levers, name = read_levers(context.args), choice("strategy", strategy, runnable())
    way = choice("by", by, ("hand", "library"))
    with Pool(ranks=ranks, backend=backend) as pool:
        done = pool.submit(name, by=way, **levers).result()
    found = describe(done)
    if json:
        write_json(found)
    else:
        write_run(done, found)
    if found["parity"] and not found["parity"]["ok"]:
        raise typer.Exit(1)


def read_levers(arguments: Sequence[str]) -> dict[str, Any]:
    """Read `--name value`, `--name=value`, `--name` and `--no-name`; names become Python's.

    Examples
    --------
    >>> read_levers(["--sequence-parallel", "--microbatches", "8", "--schedule=gpipe", "--no-reshard"])
    {'sequence_parallel': True, 'microbatches': 8, 'schedule': 'gpipe', 'reshard': False}
    """
    levers: dict[str, Any] = {}
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--") or len(word) < 3:
            raise ValueError(f"{word!r} is no option; a lever is given as --name value")
        name, joined, value = word[2:].partition("=")
        name = name.replace("-", "_")
        if joined:
            levers[name] = read_value(value)
        elif rest and not rest[0].startswith("--"):
            levers[name] = read_value(rest.pop(0))
        else:
            levers[name.removeprefix("no_")] = not name.startswith("no_")
    return levers


def read_value(text: str) -> Any:
    """Read a lever's value: a number, numbers with commas, else text.

    Examples
    --------
    >>> read_value("8"), read_value("0.02"), read_value("2,2,1,1"), read_value("1,1.5"), read_value("1f1b")
    (8, 0.02, (2, 2, 1, 1), (1.0, 1.5), '1f1b')
    """
    if WHOLE.fullmatch(text):
        return int(text)
    if NUMBER.fullmatch(text):
        return float(text)
    parts = text.split(",")
    if all(map(WHOLE.fullmatch, parts)):
        return tuple(map(int, parts))
    return tuple(map(float, parts)) if all(map(NUMBER.fullmatch, parts)) else text


def describe(done: "Run") -> dict[str, Any]:
    """Return what the JSON of a run holds; traffic and memory are those of the rank that had most."""
    values = done.values
    return {
        "parity": values[0].get("parity"),
        "traffic": most(values, "traffic", "wire_bytes"),
        "memory": most(values, "memory", "peak_bytes"),
        "seconds": values[0]["seconds"],
        **({"pipeline": values[0]["pipeline"]} if "pipeline" in values[0] else {}),
        "backend": done.backend,
        "directory": str(done.directory),
    }


def most(values: Sequence[Any], part: str, key: str) -> dict[str, Any]:
    """Return a part of the rank in which a number is largest, with the rank."""
    rank = max(range(len(values)), key=lambda rank: values[rank][part][key])
    return {"rank": rank, **values[rank][part]}


def write_run(done: "Run", found: dict[str, Any]) -> None:
    """Print a run for people."""
    traffic, memory = found["traffic"], found["memory"]
    write_pairs(
        [
            ("run", f"{done.name}, {counted(done.ranks, 'rank')} over {done.backend}"),
            ("parity", parity_text(found["parity"])),
            ("sent in a step", f"{thousands(traffic['wire_bytes'])} B by rank {traffic['rank']}, the most"),
            ("peak", f"{size(memory['peak_bytes'])} on rank {memory['rank']} at {memory['instant']}"),
            (
                "step",
                f"{seconds(found['seconds'])}, median of real compute; "
                "over gloo no evidence of a strategy's speed",
            ),
            *pipeline_pairs(found.get("pipeline")),
            ("directory", found["directory"]),
        ]
    )


def pipeline_pairs(step: dict[str, Any] | None) -> list[tuple[str, str]]:
    """Say how long a pipeline's step took on its ranks, and how far that is from the simulated one."""
    if step is None:
        return []
    which = "the step with its actions on the clock"
    if step["source"] == "emulated":
        which = "the emulated step, with sleeps in place of compute, and not the step above"
    text = f"{seconds(step['makespan_s'])}, {step['source']}: {which}"
    if "not_tried" in step:
        return [("pipeline", f"{text}; prediction {step['not_tried']}")]
    predicted = seconds(step["predicted_makespan_s"])
    return [("pipeline", f"{text}; simulated {predicted}, so {step['error']:+.1%}")]


def parity_text(parity: dict[str, Any] | None) -> str:
    """Say what the parity gate found."""
    if parity is None:
        return "not checked"
    errors = ", ".join(f"{part} {parity[f'{part}_error']:.1e}" for part in ("loss", "grad", "step"))
    verdict = "ok" if parity["ok"] else "FAILED"
    return f"{verdict} in {parity['dtype']}: relative errors {errors} (tolerance {parity['tolerance']:.0e})"
