"""The rank's process group: backend, device and rendezvous. Imports torch; the forkserver preloads it."""

import gc
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import get_pg_count

BACKENDS = {"gloo": "gloo", "nccl": "nccl", "shared-gpu": "cpu:gloo,cuda:gloo"}
"""Our name of each backend, with torch's."""

TIMEOUT = timedelta(minutes=30)
"""How long a collective may wait; a hung one is cancelled by the learner long before."""


def claim_device(device: str, threads: int) -> None:
    """Make `device` this process's own and limit its compute threads.

    Raises
    ------
    RuntimeError
        If CUDA was used before: then the fork server has touched it, and forked ranks cannot use it.
    """
    torch.set_num_threads(threads)
    if not device.startswith("cuda"):
        return
    if torch.cuda.is_initialized():
        raise RuntimeError('the fork server has initialised CUDA: use Pool(start_method="spawn")')
    torch.cuda.set_device(device)


def open_group(*, backend: str, rank: int, ranks: int, device: str, store: Path) -> None:
    """Join the process group that meets at the file `store`, and wait until every rank has joined.

    Every generation of ranks and every new group takes a file of its own: a used one holds old keys.
    """
    bound = torch.device(device) if backend == "nccl" else None
    dist.init_process_group(
        BACKENDS[backend],
        store=dist.FileStore(str(store), ranks),  # pyright: ignore[reportPrivateImportUsage]
        rank=rank,
        world_size=ranks,
        timeout=TIMEOUT,
        device_id=bound,
    )
    if bound is None:  # gloo is connected here before it is there: leaving at once would cut the others off
        dist.all_reduce(torch.zeros(1))


def close_group() -> None:
    """Leave the process group and every group made from it."""
    if dist.is_initialized():
        dist.destroy_process_group()


def groups_made() -> int:
    """Count the groups made since the default one, itself included; 0 if it is gone."""
    return get_pg_count() if dist.is_initialized() else 0


def settle_memory() -> None:
    """Give back what a job has left: cyclic garbage and the allocator's cached blocks."""
    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
