"""The one place that reads or changes environment variables.

`PLAYBOOK_RUNS` names the folder that run directories are made in; without it they go to the user's cache.
torchrun's `RANK`, `LOCAL_RANK`, `WORLD_SIZE` and `LOCAL_WORLD_SIZE` are read here as well.
"""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

HARMLESS_CUDA_CHECK = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
"""Has torch ask the driver's monitor whether there are GPUs, where CUDA must not be initialised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchrunPlace:
    """Where torchrun has put this process.

    `rank` of `ranks` over all nodes, `local_rank` of `local_ranks` on this one.
    """

    rank: int
    ranks: int
    local_rank: int
    local_ranks: int

    @property
    def one_node(self) -> bool:
        """Whether all ranks are on this node, so that data may stay on loopback."""
        return self.local_ranks == self.ranks


def chosen_runs_directory() -> Path | None:
    """Folder that `PLAYBOOK_RUNS` names, or None if it is not set."""
    chosen = os.environ.get("PLAYBOOK_RUNS")
    return Path(chosen).expanduser() if chosen else None


def cache_runs_directory() -> Path:
    """Folder for run directories in the user's cache, by the custom of the platform."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "playbook" / "runs"
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "playbook" / "runs"


def rank_environment(*, threads: int, loopback: bool) -> dict[str, str]:
    """Environment of a rank: this process's own, one thread share, data sockets on loopback.

    Parameters
    ----------
    threads
        Compute threads of one rank, at least 1.
    loopback
        Bind the data sockets of gloo and NCCL to loopback: right when all ranks are on one node.
    """
    environment = dict(os.environ)
    environment["OMP_NUM_THREADS"] = str(threads)
    if loopback:
        environment.update(loopback_sockets())
    return environment


def loopback_sockets() -> dict[str, str]:
    """Variables that keep gloo's and NCCL's data sockets on the loopback interface."""
    interface = "lo0" if sys.platform == "darwin" else "lo"
    return {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": interface}


def adopt(environment: Mapping[str, str]) -> None:
    """Make `environment` this process's own: a rank forked earlier has not seen later changes."""
    os.environ.clear()
    os.environ.update(environment)


def complete(environment: Mapping[str, str]) -> None:
    """Set the variables of `environment` that are not set yet."""
    for name, value in environment.items():
        os.environ.setdefault(name, value)


def torchrun_place() -> TorchrunPlace:
    """Place of this process among torchrun's.

    Raises
    ------
    ValueError
        If torchrun has not started this process.
    """
    try:
        return TorchrunPlace(
            rank=int(os.environ["RANK"]),
            ranks=int(os.environ["WORLD_SIZE"]),
            local_rank=int(os.environ["LOCAL_RANK"]),
            local_ranks=int(os.environ.get("LOCAL_WORLD_SIZE", os.environ["WORLD_SIZE"])),
        )
    except KeyError as missing:
        raise ValueError(
            f"the variable {missing.args[0]} is not set: start this with "
            "torchrun --nproc-per-node 2 -m playbook.runtime.torchrun STRATEGY"
        ) from None
