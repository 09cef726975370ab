"""A job on a warm pool, against starting the ranks anew as `mp.spawn` does."""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.figure import Figure, sample
from playbook.runtime.pool import Pool


def join_and_leave(rank: int, ranks: int, store: str) -> None:
    """What a spawned rank does for an empty job: join the process group and leave it."""
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
    dist.destroy_process_group()


def spawn_and_join(ranks: int) -> None:
    import torch.multiprocessing as mp

    with tempfile.TemporaryDirectory() as directory:
        mp.spawn(join_and_leave, args=(ranks, str(Path(directory) / "store")), nprocs=ranks)


def measure(tiny: bool = False) -> list[Figure]:
    """Measure an empty function on four ranks; on two if `tiny`."""
    ranks = 2 if tiny else 4
    with Pool(ranks=ranks, backend="gloo") as pool:
        taken = sample(
            lambda: pool.submit(lambda: None).result(timeout=60), times=3 if tiny else 30, warmup=3
        )
    spawned = sample(lambda: spawn_and_join(ranks), times=1 if tiny else 3, warmup=0)
    return [
        Figure(
            what=f"warm job: submit to result, {ranks} gloo ranks, empty function",
            seconds=taken,
            budget_s=0.02,
            peer="mp.spawn with init_process_group",
            peer_seconds=spawned,
            wanted_ratio=100,
        )
    ]
