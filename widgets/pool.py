"""The kernel's one pool of the explorers, and what is submitted to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playbook.runtime.pool import Pool

_pools: list[Pool] = []


def shared_pool(ranks: int) -> Pool:
    """The kernel's one pool of the explorers, made anew when another number of ranks is asked for."""
    from playbook.runtime.pool import Pool

    if _pools and _pools[-1].ranks != ranks:
        _pools.pop().close()
    if not _pools:
        _pools.append(Pool(ranks=ranks, backend="gloo"))
    return _pools[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What one press of a button runs.

    `work` and what follows go to `Pool.submit`; `phases` are the words of the progress bar after "ranks
    up"; `what` is said in the headline while it runs.
    """

    ranks: int
    work: Callable[..., Any] | str
    args: tuple[Any, ...] = ()
    levers: Mapping[str, Any] = field(default_factory=dict)
    phases: tuple[str, ...] = ()
    what: str = ""


def pool_ranks(default: int) -> int:
    """Ranks of the pool that is up, so that a job which needs no ranks of its own can use it."""
    return _pools[-1].ranks if _pools else default
