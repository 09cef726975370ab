"""A pool of ranks that stays warm between jobs."""

import atexit
import inspect
import multiprocessing.util  # noqa: F401 its exit handler waits for children, so ours has to be registered after it
import os
import platform
import weakref
from collections.abc import Callable
from functools import cache
from importlib import metadata
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import psutil

from playbook.runtime import launch, limits, payload
from playbook.runtime.crew import Plan
from playbook.runtime.job import Job
from playbook.runtime.pump import Pump

if TYPE_CHECKING:
    from pandas import DataFrame

BACKENDS = ("auto", "gloo", "nccl", "shared-gpu")
"""Names that `Pool` takes: NCCL if there are that many GPUs else gloo; gloo; NCCL; ranks that share one GPU over gloo."""

_pumps: weakref.WeakSet[Pump] = weakref.WeakSet()


class Pool:
    """Ranks that wait for jobs. Making one returns at once; the ranks start in the background.

    Parameters
    ----------
    ranks
        World size, at least 1; may exceed the cores. Default: the GPUs, or min(4, cores) on gloo.
    backend
        "auto", "gloo", "nccl" or "shared-gpu".
    start_method
        "forkserver" (default where it exists) or "spawn".

    Raises
    ------
    ValueError
        If there cannot be such a pool here.
    TypeError
        If `ranks` is not a whole number.

    Examples
    --------
    >>> def add(a, b):
    ...     return a + b
    >>> with Pool(ranks=2, backend="gloo") as pool:  # doctest: +SKIP
    ...     print(pool.submit(add, 1, b=2).result().values)
    (3, 3)
    """

    def __init__(
        self, ranks: int | None = None, backend: str = "auto", start_method: str | None = None
    ) -> None:
        plan = make_plan(ranks, backend, start_method)
        self.ranks = plan.ranks
        self.backend = plan.backend
        self._pump = Pump(plan, _description(plan))
        _pumps.add(self._pump)
        weakref.finalize(self, self._pump.abandon).atexit = False

    def submit(self, work: Callable[..., Any] | str, *args: Any, **levers: Any) -> Job:
        """Queue a job and return at once.

        Parameters
        ----------
        work
            Function to call on every rank with the arguments given, the process group being up; or a strategy's name.
        *args, **levers
            Arguments of the function, or levers of the strategy.

        Raises
        ------
        PoolClosed
            If the pool is closed.
        TypeError
            If the function cannot travel, or does not take these arguments.
        ValueError
            If there is no such strategy.
        """
        function, args, levers, name = _resolve(work, args, levers, self.ranks)
        call = payload.pack_call(function, args, levers)
        job = Job(name=name, ranks=self.ranks, owner=self._pump, keep=self)
        self._pump.submit(job, call)
        return job

    def status(self) -> "DataFrame":
        """One row a rank: rank, pid, device, state, rss_bytes and the name of its last event."""
        import pandas as pd

        crew = self._pump.crew
        rows = [
            {
                "rank": member.rank,
                "pid": member.process.pid,
                "device": self._pump.plan.devices[member.rank],
                "state": member.state,
                "rss_bytes": _resident_bytes(member.process.pid),
                "last_event": member.last_event.get("name", ""),
            }
            for member in (crew.members if crew is not None else ())
        ]
        return pd.DataFrame(rows, columns=["rank", "pid", "device", "state", "rss_bytes", "last_event"])

    def close(self) -> None:
        """Stop the ranks. Jobs that run or wait are cancelled; closing twice does nothing."""
        self._pump.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        closed = ", closed" if self._pump.closed else ""
        return f"<Pool of {self.ranks} ranks over {self.backend}{closed}>"


def make_plan(ranks: int | None, backend: str, start_method: str | None) -> Plan:
    """Check what was asked for against what this machine has."""
    name = str(backend).lower()
    if name not in BACKENDS:
        raise ValueError(f"backend {backend!r} is not known; backends are {', '.join(BACKENDS)}")
    if ranks is not None and (isinstance(ranks, bool) or not isinstance(ranks, int)):
        raise TypeError(f"ranks={ranks!r}: the number of ranks is a whole number, such as 4")
    if ranks is not None and ranks < 1:
        raise ValueError(f"ranks={ranks}: a pool has at least 1 rank")
    gpus = 0 if name == "gloo" else limits.visible_gpus()
    if name == "auto":
        name = "nccl" if gpus and (ranks is None or ranks <= gpus) else "gloo"
    if ranks is None:
        ranks = gpus if name == "nccl" and gpus else min(4, limits.cores())
    _check_gpus(name, ranks, gpus)
    _check_memory(ranks)
    method = _choose_method(start_method)
    device = {"nccl": "cuda:{}", "shared-gpu": "cuda:0"}.get(name, "cpu")
    return Plan(
        ranks=ranks,
        backend=name,
        method=method,
        threads=max(1, limits.cores() // ranks),
        devices=tuple(device.format(rank) for rank in range(ranks)),
    )


def _check_gpus(backend: str, ranks: int, gpus: int) -> None:
    if backend == "shared-gpu" and gpus < 1:
        raise ValueError('backend "shared-gpu" needs a CUDA GPU and torch sees none; use backend="gloo"')
    if backend == "nccl" and ranks > gpus:
        raise ValueError(
            f"ranks={ranks} over NCCL, which takes one GPU a rank, but torch sees {gpus}; use "
            + (f'ranks={gpus}, or backend="shared-gpu"' if gpus else 'backend="gloo"')
        )


def _check_memory(ranks: int) -> None:
    free = limits.available_memory_bytes()
    if ranks * limits.RANK_BYTES > free:
        raise ValueError(
            f"ranks={ranks} need about {ranks * limits.RANK_BYTES / 2**30:.1f} GiB of memory and "
            f"{free / 2**30:.1f} GiB are free; at most {max(1, free // limits.RANK_BYTES)} ranks fit"
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


def _resolve(
    work: Callable[..., Any] | str, args: tuple[Any, ...], levers: dict[str, Any], ranks: int
) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], str]:
    """Function, arguments, levers and name of a job."""
    if isinstance(work, str):
        from playbook.runtime.strategy_run import prepare

        return prepare(work, ranks, args, levers)
    if not callable(work):
        raise TypeError(f"{work!r} cannot be run: submit a function, or the name of a strategy")
    name = getattr(work, "__name__", type(work).__name__)
    try:
        signature = inspect.signature(work)
    except ValueError:  # some built-in functions do not tell
        return work, args, levers, name
    try:
        signature.bind(*args, **levers)
    except TypeError as problem:
        raise TypeError(
            f"{name}{signature} cannot be called with what was submitted: {problem}. A function gets only the arguments "
            "given to submit; its rank is torch.distributed.get_rank()"
        ) from None
    return work, args, levers, name


def _description(plan: Plan) -> dict[str, Any]:
    return {
        "ranks": plan.ranks,
        "backend": plan.backend,
        "devices": plan.devices,
        "start_method": plan.method,
        "threads": plan.threads,
        **_versions(),
    }


@cache
def _versions() -> dict[str, str]:
    return {
        "python": platform.python_version(),
        "torch": metadata.version("torch"),
        "platform": platform.platform(),
    }


def _resident_bytes(pid: int) -> int:
    try:
        return psutil.Process(pid).memory_info().rss
    except psutil.Error:
        return 0


def _close_all() -> None:
    for pump in list(_pumps):
        pump.close()


def _forget_all() -> None:
    for pump in list(_pumps):
        pump.forget()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_forget_all)
