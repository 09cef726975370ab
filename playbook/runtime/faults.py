"""Planted faults: what a strategy by hand must not get away with at the parity gate.

Each strategy has two. They change the code from outside, while the context is open, so that the code that
learners read stays the right one.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any
from unittest.mock import patch

import torch.distributed as dist
from torch import Tensor

GRADIENT_OF_FIRST = 5
"""Tag of the first micro-batch's gradient on its way from stage 1 to stage 0 (see `Wire`)."""


class Done:
    """Work that is over: what a collective that was left out gives back."""

    def wait(self) -> None:
        """Return at once."""


class LeavesOut:
    """torch.distributed, but the first of one kind of call does nothing.

    A sum stays this rank's own part of it, a message that never went is zeros.
    """

    def __init__(self) -> None:
        self._left_out: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(dist, name)

    def all_reduce(self, tensor: Tensor, **options: Any) -> Any:
        """Sum over the ranks, but not the first time."""
        return Done() if self._first("all_reduce") else dist.all_reduce(tensor, **options)

    def reduce_scatter(self, own: Tensor, parts: list[Tensor], group: dist.ProcessGroup) -> Any:
        """Sum and scatter, but the first time only scatter."""
        if not self._first("reduce_scatter"):
            return dist.reduce_scatter(own, parts, group=group)
        own.copy_(parts[group.rank()])
        return Done()

    def reduce_scatter_tensor(self, own: Tensor, everyone: Tensor, group: dist.ProcessGroup) -> Any:
        """Sum and scatter, but the first time only scatter."""
        if not self._first("reduce_scatter"):
            return dist.reduce_scatter_tensor(own, everyone, group=group)
        own.copy_(everyone.view(group.size(), -1)[group.rank()])
        return Done()

    def isend(self, tensor: Tensor, **options: Any) -> Any:
        """Send, but not the first micro-batch's gradient."""
        return Done() if options["tag"] == GRADIENT_OF_FIRST else dist.isend(tensor, **options)

    def irecv(self, tensor: Tensor, **options: Any) -> Any:
        """Receive, but zeros for the first micro-batch's gradient."""
        if options["tag"] != GRADIENT_OF_FIRST:
            return dist.irecv(tensor, **options)
        tensor.zero_()
        return Done()

    def _first(self, name: str) -> bool:
        first = name not in self._left_out
        self._left_out.add(name)
        return first


@contextmanager
def planted(fault: str | None, strategy: str) -> Iterator[None]:
    """Run a strategy's by-hand code with a fault in it, or with none.

    `skipped_collective` is the same for all. Where a rank's share lies, and how to get that wrong, is said by
    the strategy's `WRONG_OFFSET`: the name of a function in its file, and what makes a wrong one of it.
    """
    ranks: Any = import_module(f"playbook.strategies.{strategy}.ranks")
    if fault is None:
        yield
    elif fault == "skipped_collective":
        with patch.object(ranks, "dist", LeavesOut()):
            yield
    else:
        name, spoil = ranks.WRONG_OFFSET
        with patch.object(ranks, name, spoil(getattr(ranks, name))):
            yield
