"""A pool of ranks that stays warm between jobs."""

import atexit
import inspect
import multiprocessing.util  # noqa: F401 its exit handler waits for children: ours must be registered later
import os
import platform
import threading
import weakref
from collections.abc import Callable
from functools import cache
from importlib import metadata
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import psutil

from playbook.runtime import payload
from playbook.runtime.desk import CLOSE_S, Desk
from playbook.runtime.job import Job
from playbook.runtime.plan import Plan, make_plan
from playbook.runtime.pump import Pump
from playbook.units import counted

if TYPE_CHECKING:
    from pandas import DataFrame

_desks: weakref.WeakSet[Desk] = weakref.WeakSet()


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
        self._plan = plan
        self._desk = Desk(plan.ranks)
        self._pump = Pump(desk=self._desk, plan=plan, description=_description(plan))
        self._pump.start()
        _desks.add(self._desk)
        weakref.finalize(self, self._desk.abandon).atexit = False

    def submit(self, work: Callable[..., Any] | str, *args: Any, **levers: Any) -> Job:
        """Queue a job and return at once.

        Parameters
        ----------
        work
            Function to call on every rank with the arguments given, the process group being up; or the name
            of a strategy.
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
        job = Job(name=name, ranks=self.ranks, owner=self._desk, keep=self)
        self._desk.submit(job, call)
        return job

    def status(self) -> "DataFrame":
        """One row a rank: rank, pid, device, state, rss_bytes and the name of its last event."""
        import pandas as pd

        crew = self._desk.crew
        rows = [
            {
                "rank": member.rank,
                "pid": member.process.pid,
                "device": self._plan.devices[member.rank],
                "state": member.state,
                "rss_bytes": _resident_bytes(member.process.pid),
                "last_event": member.last_event,
            }
            for member in (crew.members if crew is not None else ())
        ]
        return pd.DataFrame(rows, columns=["rank", "pid", "device", "state", "rss_bytes", "last_event"])

    def close(self) -> None:
        """Stop the ranks. Jobs that run or wait are cancelled; closing twice does nothing."""
        _close(self._desk)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        closed = ", closed" if self._desk.closed else ""
        return f"<Pool of {counted(self.ranks, 'rank')} over {self.backend}{closed}>"


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
            f"{name}{signature} cannot be called with what was submitted: {problem}. A function gets only "
            "the arguments given to submit; its rank is torch.distributed.get_rank()"
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
    try:
        torch = metadata.version("torch")
    except metadata.PackageNotFoundError:  # built by hand, or missing, which the ranks will tell
        torch = ""
    return {"python": platform.python_version(), "torch": torch, "platform": platform.platform()}


def _resident_bytes(pid: int) -> int:
    try:
        return psutil.Process(pid).memory_info().rss
    except psutil.Error:
        return 0


def _close(desk: Desk) -> None:
    desk.close()
    if not isinstance(threading.current_thread(), Pump):  # a callback may close its own pool
        desk.ended.wait(CLOSE_S)


def _close_all() -> None:
    for desk in list(_desks):
        _close(desk)


def _forget_all() -> None:
    for desk in list(_desks):
        desk.forget()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_forget_all)
