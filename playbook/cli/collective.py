"""`playbook collective`: steps, bytes and time of a collective."""

from typing import Annotated

import typer

from playbook.cli.options import Json
from playbook.cli.output import write_json, write_pairs
from playbook.units import counted, seconds, significant, size, thousands


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command()(collective)


def collective(
    op: Annotated[
        str, typer.Argument(help="all_reduce, all_gather, reduce_scatter, all_to_all or send_recv.")
    ],
    algorithm: Annotated[str, typer.Option(help="Who sends what to whom: ring or direct.")] = "ring",
    ranks: Annotated[int, typer.Option(help="Ranks that take part.")] = 4,
    buffer: Annotated[int, typer.Option("--bytes", help="Bytes of the full buffer, S of nccl-tests.")] = 2
    ** 30,
    cluster: Annotated[
        str, typer.Option(help="Whose links: cluster preset, or NODESxGPUS-GPU.")
    ] = "1x8-h100",
    json: Json = False,
) -> None:
    """Count a collective's steps and bytes; predict its time.

    Example: playbook collective all_reduce --ranks 8 --bytes 1073741824
    """
    from playbook.collectives import collective as make
    from playbook.spec import cluster as find_cluster

    made = make(op.replace("-", "_"), algorithm, ranks)
    machines = find_cluster(cluster)
    if ranks > machines.gpus and not machines.shared:
        raise ValueError(
            f"ranks={ranks} but cluster {cluster} has {counted(machines.gpus, 'GPU')}; use a larger --cluster"
        )
    link = machines.link(ranks)
    found = {
        "steps": len(made.load),
        "bytes_sent_per_rank": made.bytes_sent_per_rank(buffer),
        "seconds": made.seconds(buffer, link),
        "bus_factor": made.bus_factor,
    }
    if json:
        write_json(found)
        return
    write_pairs(
        [
            (
                "collective",
                f"{made.op} by {made.algorithm} on {counted(made.ranks, 'rank')}, buffer {size(buffer)}",
            ),
            ("steps", str(found["steps"])),
            ("bytes sent per rank, at most", f"{thousands(found['bytes_sent_per_rank'])} B"),
            (
                "time",
                f"{seconds(found['seconds'])} on {size(link.bandwidth_bytes_per_s)}/s a GPU and direction",
            ),
            ("bus factor", significant(made.bus_factor)),
        ]
    )
    typer.echo("source: formula")
