"""What a pool is asked for, checked against what this machine has."""

from dataclasses import dataclass

from playbook.runtime import launch, limits

BACKENDS = ("auto", "gloo", "nccl", "shared-gpu")
"""NCCL if there are that many GPUs, else gloo; gloo; NCCL; ranks that share one GPU over gloo."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What every generation of a pool has in common.

    `devices` names each rank's device, `method` the start method, `threads` the compute threads of a rank.
    """

    ranks: int
    backend: str
    method: str
    threads: int
    devices: tuple[str, ...]


def make_plan(ranks: int | None, backend: str, start_method: str | None) -> Plan:
    """Fill in the defaults and refuse what cannot run here.

    Raises
    ------
    ValueError
        If there cannot be such a pool here.
    TypeError
        If `ranks` is not a whole number.
    """
    name = str(backend).lower()
    if name not in BACKENDS:
        raise ValueError(f"backend {backend!r} is not known; backends are {', '.join(BACKENDS)}")
    if ranks is not None:
        _check_number(ranks)
    gpus = 0 if name == "gloo" else limits.visible_gpus()
    if name == "auto":
        name = "nccl" if gpus and (ranks is None or ranks <= gpus) else "gloo"
    if ranks is None:
        ranks = gpus if name == "nccl" and gpus else min(4, limits.cores())
    _check_gpus(name, ranks, gpus)
    _check_memory(ranks)
    device = {"nccl": "cuda:{}", "shared-gpu": "cuda:0"}.get(name, "cpu")
    return Plan(
        ranks=ranks,
        backend=name,
        method=_choose_method(start_method),
        threads=max(1, limits.cores() // ranks),
        devices=tuple(device.format(rank) for rank in range(ranks)),
    )


def _check_number(ranks: int) -> None:
    if isinstance(ranks, bool) or not isinstance(ranks, int):
        raise TypeError(f"ranks={ranks!r}: the number of ranks is a whole number, such as 4")
    if ranks < 1:
        raise ValueError(f"ranks={ranks}: a pool has at least 1 rank")


def _check_gpus(backend: str, ranks: int, gpus: int) -> None:
    if backend == "shared-gpu" and gpus < 1:
        raise ValueError('backend "shared-gpu" needs a CUDA GPU and torch sees none; use backend="gloo"')
    if backend == "nccl" and ranks > gpus:
        mend = f'ranks={gpus}, or backend="shared-gpu"' if gpus else 'backend="gloo"'
        raise ValueError(f"ranks={ranks} over NCCL, one GPU a rank, but torch sees {gpus}; use {mend}")


def _check_memory(ranks: int) -> None:
    free = limits.available_memory_bytes()
    needed = ranks * limits.RANK_BYTES
    if needed > free:
        raise ValueError(
            f"ranks={ranks} need about {needed / 2**30:.1f} GiB of memory and {free / 2**30:.1f} GiB are "
            f"free; at most ranks={max(1, free // limits.RANK_BYTES)}"
        )


def _choose_method(start_method: str | None) -> str:
    methods = launch.available_methods()
    if start_method is None:
        return methods[0]
    if start_method not in methods:
        raise ValueError(
            f"start_method={start_method!r}: ranks can be started here by {' or '.join(methods)}"
        )
    return start_method
