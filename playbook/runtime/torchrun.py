"""The way in for torchrun: ranks that it has started write the same run directory as a pool's.

A strategy: `torchrun --nproc-per-node 2 -m playbook.runtime.torchrun tp --by library --sequence-parallel`.
A script of one's own, started by torchrun: `with session("my run"): train()`.

What ranks print stays with torchrun. Data sockets are bound to loopback if all ranks are on one node.
"""

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playbook.runtime import environment, limits, rundir
from playbook.runtime.errors import describe
from playbook.runtime.plan import BACKENDS
from playbook.runtime.rank import Seat, call, on_rank
from playbook.runtime.reporter import Reporter

USAGE = """usage: torchrun --nproc-per-node N -m playbook.runtime.torchrun STRATEGY [--LEVER VALUE ...]
  --by hand|library                     whose code runs
  --backend auto|gloo|nccl|shared-gpu   what the ranks talk over
  --directory PATH                      where the run directory goes"""


@contextmanager
def session(
    name: str = "torchrun", *, backend: str = "auto", directory: str | Path | None = None
) -> Iterator[Seat]:
    """Set up this rank's process group and reporting, and write the run directory.

    Parameters
    ----------
    name
        Name of the run.
    backend
        "auto" (NCCL if there is a GPU for each rank of the node, else gloo), "gloo", "nccl" or "shared-gpu".
    directory
        Run directory, the same on all nodes; a new one that rank 0 makes if None.

    Raises
    ------
    ValueError
        If torchrun has not started this process, or the backend is not known.
    """
    import torch.distributed as dist

    place = environment.torchrun_place()
    seat = _take_seat(place, backend, name, directory)
    reporter = Reporter(rank=seat.rank, directory=seat.directory, post=None)
    started = time.monotonic()
    with on_rank(seat, reporter):
        try:
            yield seat
            dist.barrier()
        except BaseException as problem:  # torchrun stops the others; their records stay
            told = describe(problem, phase=reporter.phase)
            reporter.emit("error", told["cause"], {"phase": told["phase"], "kinds": told["kinds"]})
            raise
    if seat.rank == 0:
        rundir.finish(seat.directory, state="done", seconds=time.monotonic() - started)
    dist.destroy_process_group()


def main(arguments: Sequence[str]) -> int:
    """Run a strategy on the ranks that torchrun has started; 2 is the exit code of a user's error."""
    try:
        place = environment.torchrun_place()
        strategy, options = read_arguments(arguments)
        chosen = {key: options.pop(key) for key in ("backend", "directory") if key in options}
        from playbook.runtime.strategy_run import prepare

        function, args, levers, name = prepare(strategy, place.ranks, (), options)
        with session(name, **chosen) as seat:
            call(function, args, levers)
    except (ValueError, TypeError) as problem:
        print(problem, file=sys.stderr)
        return 2
    if seat.rank == 0:
        print(json.dumps({"directory": str(seat.directory)}))
    return 0


def read_arguments(arguments: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """Strategy and levers of a command line.

    Examples
    --------
    >>> read_arguments(["tp", "--by", "library", "--sequence-parallel", "--seeds=[0, 1]", "--no-reshard"])
    ('tp', {'by': 'library', 'sequence_parallel': True, 'seeds': [0, 1], 'reshard': False})
    """
    if not arguments or arguments[0].startswith("-"):
        raise ValueError(USAGE)
    levers: dict[str, Any] = {}
    rest = [part for argument in arguments[1:] for part in argument.split("=", 1)]
    while rest:
        option = rest.pop(0)
        if not option.startswith("--"):
            raise ValueError(f"{option!r} is no option: levers are given as --name value")
        name = option[2:].replace("-", "_")
        if rest and not rest[0].startswith("--"):
            levers[name] = _read_value(rest.pop(0))
        else:
            levers[name.removeprefix("no_")] = not name.startswith("no_")
    return arguments[0], levers


def _read_value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _take_seat(
    place: environment.TorchrunPlace, backend: str, name: str, directory: str | Path | None
) -> Seat:
    """Join the process group on this rank's device and agree on the run directory."""
    import torch
    import torch.distributed as dist

    from playbook.runtime import group

    if backend not in BACKENDS:
        raise ValueError(f"backend {backend!r} is not known; backends are {', '.join(BACKENDS)}")
    if backend == "auto":
        backend = "nccl" if limits.visible_gpus() >= place.local_ranks else "gloo"
    if place.one_node:
        environment.complete(environment.loopback_sockets())
    device = {"nccl": f"cuda:{place.local_rank}", "shared-gpu": "cuda:0"}.get(backend, "cpu")
    group.claim_device(device, max(1, limits.cores() // place.local_ranks))
    bound = torch.device(device) if backend == "nccl" else None
    dist.init_process_group(group.BACKENDS[backend], timeout=group.TIMEOUT, device_id=bound)
    chosen: list[str | None] = [None]
    if place.rank == 0:
        description = {
            "name": name,
            "ranks": place.ranks,
            "backend": backend,
            "start_method": "torchrun",
            "torch": torch.__version__,
        }
        chosen = [str(rundir.create(description, None if directory is None else Path(directory)))]
    dist.broadcast_object_list(chosen, src=0)
    shared = Path(str(chosen[0]))
    shared.mkdir(parents=True, exist_ok=True)  # on a node that shares no file system with rank 0
    return Seat(rank=place.rank, ranks=place.ranks, backend=backend, device=device, directory=shared)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
