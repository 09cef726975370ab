"""`playbook demo`: every strategy and every collective on real ranks, with parity, bytes and seconds."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any

import typer

from playbook.cli.options import Json
from playbook.cli.output import write_json, write_table
from playbook.spec.rules import whole
from playbook.units import seconds, size

if TYPE_CHECKING:
    from playbook.runtime.pool import Pool

WAYS = ("hand", "library")
STRATEGY_LEVERS: Mapping[str, Any] = {"repeats": 1, "sequence": 32, "micro_batch": 1}
"""What keeps a demonstration short: one timed step of few tokens."""
DEADLINE_S = 120.0
"""Longest that one demonstration may take."""


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command()(demo)


@dataclass(frozen=True, slots=True, kw_only=True)
class Demo:
    """One demonstration: its name and kind, whose code or which algorithm runs, the levers of the job."""

    name: str
    kind: str
    by: str
    ranks: int
    levers: Mapping[str, Any]


def demo(
    ranks: Annotated[
        int | None, typer.Option(help="Ranks; 2 for strategies and 4 for collectives, if left out.")
    ] = None,
    json: Json = False,
) -> None:
    """Run every strategy and collective here on real ranks.

    Status 1 if one is wrong.
    """
    from tqdm import tqdm

    from playbook.runtime.pool import Pool

    if ranks is not None:
        whole("ranks", ranks)
    found = []
    with tqdm(list(all_demos(ranks)), desc="demo", unit="run", leave=False) as bar:
        for world, group in groupby(bar, key=lambda each: each.ranks):
            with Pool(ranks=world, backend="gloo") as pool:
                for each in group:
                    bar.set_postfix_str(f"{each.name} by {each.by}")
                    found.append(run_demo(pool, each))
    if json:
        write_json({"demos": found})
    else:
        write_demos(found)
    if not all(row["parity_ok"] for row in found):
        raise typer.Exit(1)


def all_demos(ranks: int | None = None) -> Iterator[Demo]:
    """Yield a demonstration for everything that the folders hold, strategies first."""
    from playbook.collectives import algorithms
    from playbook.strategies import runnable

    for strategy in runnable():
        for way in WAYS:
            levers = {"by": way, **STRATEGY_LEVERS}
            yield Demo(
                name=strategy, kind="strategy", by=way, ranks=2 if ranks is None else ranks, levers=levers
            )
    for name, algorithm in algorithms().items():
        for operation in algorithm.phases:
            levers = {"algorithm": name}
            yield Demo(
                name=operation, kind="collective", by=name, ranks=4 if ranks is None else ranks, levers=levers
            )


def run_demo(pool: "Pool", each: Demo) -> dict[str, Any]:
    """Run a demonstration and say whether it was right, what it sent and how long it took."""
    start = time.perf_counter()
    values = pool.submit(each.name, **each.levers).result(timeout=DEADLINE_S).values
    return {
        "name": each.name,
        "kind": each.kind,
        "by": each.by,
        "parity_ok": all(value["parity"]["ok"] for value in values),
        "seconds": time.perf_counter() - start,
        "ranks": each.ranks,
        "bytes_sent_per_rank": max(value["traffic"]["wire_bytes"] for value in values),
    }


def write_demos(found: list[dict[str, Any]]) -> None:
    """Print the demonstrations for people."""
    rows = [
        (
            row["name"],
            f"by {row['by']}",
            str(row["ranks"]),
            "ok" if row["parity_ok"] else "FAILED",
            size(row["bytes_sent_per_rank"]),
            seconds(row["seconds"]),
        )
        for row in found
    ]
    write_table(("what", "", "ranks", "parity", "sent per rank", "time"), rows, words=(0, 1, 3))
    wrong = [row for row in found if not row["parity_ok"]]
    total = sum(row["seconds"] for row in found)
    typer.echo(f"{len(found) - len(wrong)} of {len(found)} right, {seconds(total)}; source: measured:gloo")
