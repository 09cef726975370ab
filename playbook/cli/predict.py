"""`playbook memory` and `playbook trace`: the peak of a training step, predicted and traced."""

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from playbook.cli.options import with_scenario
from playbook.cli.output import write_json, write_pairs, write_table
from playbook.cli.terms import both, when, write_terms
from playbook.spec import Scenario
from playbook.units import counted, gb, percent, seconds, thousands

if TYPE_CHECKING:
    from playbook.predict.memory import TrainingMemory

MEMORY_KEYS = (
    *("peak_bytes", "reserved_bytes", "device_bytes", "instant", "worst_rank", "fits", "terms", "per_stage"),
    *("host_bytes", "note", "reserved_low_bytes"),
)
TRACE_KEYS = ("peak_bytes", "reserved_bytes", "terms", "seconds", "rank", "instant")
REAL_CODE = "PyTorch's, as --framework torch predicts it; the textbook has none to run"


FRAMEWORK = "Whose code runs: torch; textbook, which has none, is taken as torch."


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command(name="memory")(with_scenario(memory))
    app.command(name="trace")(with_scenario(trace, FRAMEWORK))


def memory(scenario: Scenario, rank: int | None, as_json: bool) -> None:
    """Predict the peak memory of a training step, by term.

    On the rank that needs most. Example: playbook memory --model llama-3.1-70b --dp 64 --zero 3 --recompute
    full --framework torch --recipe fsdp2-mixed
    """
    from playbook.predict import training_memory

    found = training_memory(scenario, rank=rank)
    if as_json:
        write_json({key: getattr(found, key) for key in MEMORY_KEYS})
        return
    worst = found.worst_rank
    place = ", ".join(f"{axis} {index}" for axis, index in worst.items() if axis != "rank")
    limit = scenario.cluster.gpu.memory_bytes
    host = [("on the host", gb(found.host_bytes))] if found.host_bytes else []
    write_pairs(
        [
            ("scenario", summary(scenario)),
            ("rank", f"{thousands(worst['rank'])} of {thousands(scenario.world)} ({place})"),
            ("peak allocated", f"{both(found.peak_bytes)} at {when(found.instant)}"),
            *host,
            *allocator(found),
            ("GPU", f"{scenario.cluster.gpu.name}: {gb(limit)}, {verdict(found.device_bytes, limit)}"),
        ]
    )
    typer.echo("")
    write_terms(found.terms, found.peak_bytes)
    if len(found.per_stage) > 1:
        typer.echo("")
        write_table(
            ("pipeline rank", "stages that it holds", "peak"),
            [
                (str(row["stage"]), stages, gb(row["peak_bytes"]))
                for row, stages in zip(found.per_stage, stages_by_rank(scenario), strict=True)
            ],
            words=(0, 1),
        )
    typer.echo("source: formula")
    if found.note:
        typer.echo(f"note: {found.note}")


def allocator(found: "TrainingMemory") -> list[tuple[str, str]]:
    """Tell what lies beyond the peak: the allocator's band, left out where it is none, and the context."""
    low, high = found.reserved_low_bytes, found.reserved_bytes
    device = gb(found.device_bytes)
    if high == found.peak_bytes:
        return [("with the driver's context", device)]
    band = f"{gb(low)} to {gb(high)}"
    return [
        ("with what the allocator keeps", f"{band} reserved"),
        ("with the driver's context", f"{device} at most"),
    ]


def stages_by_rank(scenario: Scenario) -> list[str]:
    """Return which stages of the model each pipeline rank holds, as in "0 and 7"."""
    from playbook.schedules.registry import find_plan

    layout = scenario.layout
    plan = find_plan(layout.schedule)
    placement = plan.placement(layout.pp, layout.stages // layout.pp)
    depth = len(placement) // plan.chains
    held = [[slot % depth for slot, rank in enumerate(placement) if rank == r] for r in range(layout.pp)]
    return [" and ".join(map(str, stages)) for stages in held]


def trace(scenario: Scenario, rank: int | None, as_json: bool) -> None:
    """Run one rank's real code on fake tensors, without a GPU.

    Its peak by term, beside the formula's. Example: playbook trace --model llama-3.1-8b --dp 8 --zero 3
    """
    from playbook.predict import training_memory
    from playbook.predict.left_out import left_out
    from playbook.runtime.trace import trace as traced

    ran = replace(scenario, framework="torch")
    announce(f"tracing {scenario.model.name} on fake tensors, which takes seconds to a few minutes")
    found, note = traced(scenario, rank=rank), left_out(scenario.model)
    if as_json:
        content = {key: getattr(found, key) for key in TRACE_KEYS}
        write_json({**content, "framework": ran.framework, "note": note})
        return
    formula = training_memory(ran, rank=found.rank)
    formulas = {row["term"]: row["formula"] for row in formula.terms}
    write_pairs(
        [
            ("scenario", summary(ran)),
            *real_code(scenario),
            ("rank", f"{thousands(found.rank)} of {thousands(scenario.world)}"),
            ("peak allocated", f"{both(found.peak_bytes)} at {when(found.instant)}"),
            ("predicted by formula", f"{both(formula.peak_bytes)} at {when(formula.instant)}"),
            (
                "seconds of the step",
                seconds(found.seconds) if found.seconds else "none: fake tensors take no time",
            ),
        ]
    )
    typer.echo("")
    write_terms(
        [{**row, "formula": formulas.get(row["term"])} for row in found.terms],
        found.peak_bytes,
        predicted={row["term"]: row["bytes"] for row in formula.terms},
    )
    typer.echo("source: traced; predicted and formula: formula")
    if note:
        typer.echo(f"note: {note}")


def real_code(scenario: Scenario) -> list[tuple[str, str]]:
    """Say whose code runs where the scenario asks for the papers' accounting."""
    return [("code", REAL_CODE)] if scenario.framework == "textbook" else []


def announce(text: str) -> None:
    """Tell a person at a terminal why nothing is seen yet."""
    if sys.stderr.isatty():
        typer.echo(text, err=True)


def summary(scenario: Scenario) -> str:
    """Return a scenario in one line."""
    layout = scenario.layout
    axes = dict(layout.axes)
    inside = {name: getattr(layout, name) for name in ("ep", "etp", "dp_replicate") if name not in axes}
    split = [f"{axis} {thousands(degree)}" for axis, degree in {**axes, **inside}.items() if degree > 1]
    degrees = " ".join(split) or "one rank"
    batches = counted(scenario.microbatches, "micro-batch", "micro-batches")
    zero = f", ZeRO-{layout.zero}" if layout.zero else ""
    return (
        f"{scenario.model.name} ({thousands(scenario.model.parameters)} parameters), {degrees}{zero}, "
        f"sequence {thousands(scenario.workload.sequence)}, {batches} "
        f"of {scenario.workload.micro_batch}, {', '.join([scenario.workload.recipe, *levers(scenario)])}, "
        f"{scenario.framework}"
    )


def levers(scenario: Scenario) -> list[str]:
    """Return what a scenario changes about its memory, in words; what is left at its default is not told."""
    work, layout = scenario.workload, scenario.layout
    lora = work.lora
    told = {
        "sequence parallel": layout.sequence_parallel,
        "not resharded": layout.zero == 3 and not layout.reshard,  # noqa: PLR2004  # the stage's number
        layout.schedule: layout.pp > 1,
        f"LoRA of rank {lora.rank} on {' '.join(lora.targets)}" if lora else "": lora is not None,
        f"{work.recompute} recompute": work.recompute != "none",
        f"{work.attention} attention": work.attention != "flash",
        f"{work.loss} loss": work.loss != "eager",
        f"{work.offload_parts} offloaded to {work.offload}": work.offload != "none",
    }
    return [words for words, found in told.items() if found]


def verdict(device_bytes: float, limit_bytes: float) -> str:
    """Say whether a peak fits a GPU, and by how much."""
    share = percent(device_bytes / limit_bytes)
    return f"fits ({share} of it)" if device_bytes <= limit_bytes else f"does not fit ({share} of it)"
