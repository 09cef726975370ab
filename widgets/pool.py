"""The kernel's pools of the explorers, and what is submitted to them.

One pool is enough for explorers that ask for the same number of ranks. Another number gets a pool of its own
while the first is at work, and takes its place when it is not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playbook.runtime.job import Job
    from playbook.runtime.pool import Pool

ENDED = ("done", "failed", "cancelled")

_pools: dict[int, Pool] = {}
_jobs: dict[int, Job] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What one press of a button runs.

    `work` and what follows go to `Pool.submit`; `phases` are the words of the progress bar after "ranks up";
    `what` is said in the headline while it runs; `name` is how the job shows itself.
    """

    ranks: int
    work: Callable[..., Any] | str
    args: tuple[Any, ...] = ()
    levers: Mapping[str, Any] = field(default_factory=dict)
    phases: tuple[str, ...] = ()
    what: str = ""
    name: str = ""


def submit(task: Task) -> Job:
    """Submit a task to the pool of its size, which is started if there is none.

    Raises
    ------
    ValueError
        If there cannot be such a pool here, or the work is not known.
    """
    job = shared_pool(task.ranks).submit(task.work, *task.args, **task.levers)
    job.title = task.name
    _jobs[task.ranks] = job
    return job


def shared_pool(ranks: int) -> Pool:
    """The pool of this size; idle ones of another size are closed, so that ranks do not pile up."""
    from playbook.runtime.pool import Pool

    if ranks not in _pools:
        for other in list(_pools):
            if other not in _jobs or _jobs[other].state in ENDED:
                close(other)
        _pools[ranks] = Pool(ranks=ranks, backend="gloo")
    return _pools[ranks]


def close(ranks: int) -> None:
    """Stop the pool of this size."""
    _jobs.pop(ranks, None)
    _pools.pop(ranks).close()


def pool_ranks(default: int) -> int:
    """Size of a pool that is up, so that a job which needs no ranks of its own can use it."""
    return next(iter(_pools), default)
