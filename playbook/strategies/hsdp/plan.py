"""Hybrid sharding (HSDP) as a pass: FSDP2 inside each of R replicas, gradient shards summed between them.

Communicates over dp, inside a replica: what FSDP2 does, among N = dp · cp / R ranks. Communicates over
dp_replicate: one all-reduce of each reduced gradient shard, 2 (R − 1)/R of 1/N of the gradients' bytes on the
wire. Parameters and their state are copied R times; gathers stay inside a replica, which is why replicas are
laid so that one fits the fast links. Source: `fully_shard` over a mesh of two axes, torch 2.13.
"""

from playbook.program.passes import Plan
from playbook.spec import Layout
from playbook.strategies.fsdp2.plan import shard

REPLICAS = 2


def layout(ranks: int, **levers: object) -> Layout:
    """All ranks are data parallel, in two replicas unless a lever says how many."""
    return Layout(**{"dp": ranks, "zero": 3, "dp_replicate": REPLICAS, **levers})  # type: ignore[arg-type]


PLAN = Plan(
    name="hsdp",
    axis="dp_replicate",
    step="data",
    summary="Each replica's ranks share all state as FSDP2 does; replicas all-reduce their gradient shards.",
    levers={
        "reshard": "free gathered parameters after forward, or keep them until backward",
        "dp_replicate": "replicas, which hold a copy of the state each",
    },
    applies=lambda layout: layout.zero == 3 and layout.dp_replicate > 1,
    rewrite=shard,
    layout=layout,
)
