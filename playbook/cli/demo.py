"""`playbook demo`: every strategy and every collective on real ranks, with parity, bytes and seconds."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from playbook.cli.options import Json
from playbook.cli.output import write_json, write_table
from playbook.units import seconds, size

if TYPE_CHECKING:
    from playbook.runtime.pool import Pool

WAYS = ("hand", "library")
STRATEGY_LEVERS: Mapping[str, Any] = {"repeats": 1}
"""What keeps a demonstration short: one timed step."""
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
    levers: Mapping[str, Any]


def demo(
    ranks: Annotated[int, typer.Option(help="Ranks of the pool.")] = 2,
    json: Json = False,
) -> None:
    """Run every strategy and every collective on real ranks; status 1 if one is wrong."""
    from tqdm import tqdm

    from playbook.runtime.pool import Pool

    found = []
    with Pool(ranks=ranks, backend="gloo") as pool:
        bar = tqdm(list(all_demos()), desc="demo", unit="run", leave=False)
        for each in bar:
            bar.set_postfix_str(f"{each.name} by {each.by}")
            found.append(run_demo(pool, each))
    if json:
        write_json({"demos": found})
    else:
        write_demos(found)
    if not all(row["parity_ok"] for row in found):
        raise typer.Exit(1)


def all_demos() -> Iterator[Demo]:
    """Yield a demonstration for everything that the folders hold."""
    from playbook.collectives import algorithms
    from playbook.strategies import runnable

    for strategy in runnable():
        for way in WAYS:
            yield Demo(name=strategy, kind="strategy", by=way, levers={"by": way, **STRATEGY_LEVERS})
    for name, algorithm in algorithms().items():
        for operation in algorithm.phases:
            yield Demo(name=operation, kind="collective", by=name, levers={"algorithm": name})


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
        "bytes_sent_per_rank": max(value["traffic"]["wire_bytes"] for value in values),
    }


def write_demos(found: list[dict[str, Any]]) -> None:
    """Print the demonstrations for people."""
    rows = [
        (
            row["name"],
            f"by {row['by']}",
            "ok" if row["parity_ok"] else "FAILED",
            size(row["bytes_sent_per_rank"]),
            seconds(row["seconds"]),
        )
        for row in found
    ]
    write_table(("what", "", "parity", "sent per rank", "time"), rows, words=(0, 1, 2))
    wrong = [row for row in found if not row["parity_ok"]]
    total = sum(row["seconds"] for row in found)
    typer.echo(f"{len(found) - len(wrong)} of {len(found)} right, {seconds(total)}; source: measured:gloo")
