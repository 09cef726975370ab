"""`playbook memory` and `playbook trace`: the peak of a training step, predicted and traced."""

from typing import Any

import typer

from playbook.cli.options import with_scenario
from playbook.cli.output import write_json, write_pairs, write_table
from playbook.spec import Scenario
from playbook.units import GB, gb, gib, mb, percent, seconds, thousands

MEMORY_KEYS = (
    *("peak_bytes", "reserved_bytes", "device_bytes", "instant", "worst_rank", "fits", "terms", "per_stage"),
    *("host_bytes", "note"),
)
BEYOND = ("reserved_unused", "context")
"""Terms that the allocator does not hand out, so that they are no part of the peak."""
TRACE_KEYS = ("peak_bytes", "reserved_bytes", "terms", "seconds", "rank")


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command(name="memory")(with_scenario(memory))
    app.command(name="trace")(with_scenario(trace))


def memory(scenario: Scenario, rank: int | None, as_json: bool) -> None:
    """Predict the peak of a training step, by term, on the rank that needs most."""
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
            ("rank", f"{worst['rank']} of {scenario.world} ({place})"),
            ("peak allocated", f"{both(found.peak_bytes)} at {found.instant}"),
            *host,
            ("with what the allocator keeps", f"{gb(found.reserved_bytes)} reserved, upper end"),
            ("with the driver's context", gb(found.device_bytes)),
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
    """Trace the real code of one rank under fake tensors: its peak by term, without a GPU."""
    from playbook.runtime.trace import trace as traced

    found = traced(scenario, rank=rank)
    if as_json:
        write_json({key: getattr(found, key) for key in TRACE_KEYS})
        return
    write_pairs(
        [
            ("scenario", summary(scenario)),
            ("rank", f"{found.rank} of {scenario.world}"),
            ("peak allocated", both(found.peak_bytes)),
            (
                "seconds of the step",
                seconds(found.seconds) if found.seconds else "none: fake tensors take no time",
            ),
        ]
    )
    typer.echo("")
    write_terms(found.terms, found.peak_bytes)
    typer.echo("source: traced")


def summary(scenario: Scenario) -> str:
    """Return a scenario in one line."""
    split = [f"{axis} {degree}" for axis, degree in scenario.layout.axes if degree > 1]
    degrees, several = " ".join(split) or "one rank", "es" * (scenario.microbatches > 1)
    zero = f", ZeRO-{scenario.layout.zero}" if scenario.layout.zero else ""
    return (
        f"{scenario.model.name} ({thousands(scenario.model.parameters)} parameters), {degrees}{zero}, "
        f"sequence {thousands(scenario.workload.sequence)}, {scenario.microbatches} micro-batch{several} "
        f"of {scenario.workload.micro_batch}, {scenario.workload.recipe}, {scenario.framework}"
    )


def both(size_bytes: float) -> str:
    """Write bytes in decimal and in binary units."""
    return f"{gb(size_bytes)} ({gib(size_bytes)})" if size_bytes >= GB else mb(size_bytes)


def verdict(device_bytes: float, limit_bytes: float) -> str:
    """Say whether a peak fits a GPU, and by how much."""
    share = percent(device_bytes / limit_bytes)
    return f"fits ({share} of it)" if device_bytes <= limit_bytes else f"does not fit ({share} of it)"


def write_terms(terms: list[dict[str, Any]], peak_bytes: float) -> None:
    """Print the terms of a peak, largest first."""
    unit = gb if peak_bytes >= GB else mb
    ordered = sorted((row for row in terms if row["bytes"]), key=lambda row: -row["bytes"])
    rows = [
        (
            row["term"].replace("_", " "),
            unit(row["bytes"]),
            "beyond it" if row["term"] in BEYOND else percent(row["bytes"] / peak_bytes),
            row.get("formula") or "",
        )
        for row in ordered
    ]
    formula = "formula" if any(row[3] for row in rows) else ""
    write_table(("term", "bytes", "of the peak", formula), rows, words=(0, 3))
