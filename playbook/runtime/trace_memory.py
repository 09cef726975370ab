"""The ledger of storages: which bytes are born and die at which operation, and what they are for.

It counts storages, not tensors, by weak references: a storage is born with the operation whose result holds
it and dies when the last tensor over it goes, after the operation that ran before that moment. That holds for
fake tensors and real ones, and gives the walk of a program: births before an operation, deaths after it.
"""

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from playbook.runtime.collective_calls import tensors_of
from playbook.runtime.kernel_scratch import scratch_bytes
from playbook.runtime.owners import Place

BEFORE = -1
"""Birth of what was there before the step."""

WAIT = "_c10d_functional::wait_tensor"
"""On fake tensors it gives out a new one."""

TAKES_GRADIENT = "aten::detach"
"""With this operation a node that accumulates gradients takes its first."""


@dataclass(slots=True, kw_only=True)
class Holding:
    """One storage over one stretch of its life (a storage that is resized has several).

    Parameters
    ----------
    size_bytes
        Bytes it holds.
    birth, death
        Events; `BEFORE` if it was there before the step, None if it outlives it.
    term
        What it is for, where that is known from the start; None to be told by its life.
    shape, op, place
        Result that first held it, the operation that made it and where that one belongs.
    """

    size_bytes: int
    birth: int
    death: int | None = None
    term: str | None = None
    shape: tuple[int, ...] = ()
    op: str = ""
    place: Place | None = None


class Ledger:
    """Keeps the holdings of a step.

    Parameters
    ----------
    block_bytes
        The allocator hands out multiples of this: 512 on CUDA, 1 to count what tensors need.
    kernels
        Whose kernels the operations stand for, "cpu" or "cuda".
    """

    def __init__(self, block_bytes: int = 1, kernels: str = "cpu") -> None:
        self.block_bytes, self.kernels = block_bytes, kernels
        self.holdings: list[Holding] = []
        self._live: dict[int, Holding] = {}
        self._watches: dict[int, weakref.ref] = {}
        self._event = BEFORE
        self._op = ""
        self._place: Place | None = None

    def own(self, tensor: Tensor, term: str) -> None:
        """Enter a tensor that exists before the step, with the term it counts under."""
        for part in _parts(tensor):
            self._admit(part, term=term, birth=BEFORE)

    def reserve(self, size_bytes: int, term: str) -> None:
        """Enter memory that no tensor shows, such as a library's workspace."""
        self.holdings.append(Holding(size_bytes=size_bytes, birth=BEFORE, term=term))

    def before(self, event: int, op: str, place: Place | None, args: tuple) -> None:
        """Note that an operation starts; arguments not seen before were there before the step."""
        self._event, self._op, self._place = event, op, place
        # Gloo's reduce-scatter copies its input out of sight; it shows when FSDP's own work waits for it.
        # Other backends, for which the ledger stands in, have no such copy.
        scratch = place is not None and place.aside and not place.accumulates
        for tensor in tensors_of(args):
            if scratch:
                self._watch(tensor.untyped_storage())
            else:
                self._admit(tensor, term=_older(place), birth=BEFORE)
        if op == TAKES_GRADIENT and place is not None and place.accumulates:
            self.mark(args[0], "gradients")

    def mark(self, tensor: Tensor, term: str) -> None:
        """Say what a storage is for, now that it shows."""
        held = self._live.get(tensor.untyped_storage()._cdata)
        if held is not None and held.birth != BEFORE:
            held.term = term

    def after(self, args: tuple, result: Any) -> int:
        """Enter the storages that an operation made and return their bytes."""
        if self._op == WAIT:
            self._hand_on(args[0], result)
            return 0
        self._pass_through(scratch_bytes(self._op, result, self.kernels))
        return sum(self._admit(tensor, term=None, birth=self._event) for tensor in tensors_of(result))

    @contextmanager
    def watching(self) -> Iterator["Ledger"]:
        """Follow storages that are resized in place, as FSDP does with its unsharded weights."""
        plain = torch.UntypedStorage.resize_

        def resize_(storage: torch.UntypedStorage, size: int) -> Any:
            result = plain(storage, size)
            self._resized(storage)
            return result

        torch.UntypedStorage.resize_ = resize_  # pyright: ignore[reportAttributeAccessIssue]
        try:
            yield self
        finally:
            torch.UntypedStorage.resize_ = plain
            self._watches.clear()

    def _admit(self, tensor: Tensor, *, term: str | None, birth: int) -> int:
        storage = tensor.untyped_storage()
        if not self._watch(storage):
            return 0
        return self._open(storage._cdata, storage.nbytes(), term=term, birth=birth, shape=tuple(tensor.shape))

    def _watch(self, storage: torch.UntypedStorage) -> bool:
        """Notice when a storage goes; tell whether it was not known yet."""
        key = storage._cdata
        if key in self._watches:
            return False
        self._watches[key] = weakref.ref(storage, lambda _gone: self._died(key))
        return True

    def _open(self, key: int, size: int, *, term: str | None, birth: int, shape: tuple[int, ...]) -> int:
        if size:
            size = -(-size // self.block_bytes) * self.block_bytes
            made = Holding(
                size_bytes=size, birth=birth, term=term, shape=shape, op=self._op, place=self._place
            )
            self._live[key] = made
            self.holdings.append(made)
        return size

    def _pass_through(self, size: int) -> None:
        """Enter what an operation takes and frees inside."""
        if size:
            event, place = self._event, self._place
            held = Holding(
                size_bytes=size, birth=event, death=event, term="temporary", op=self._op, place=place
            )
            self.holdings.append(held)

    def _close(self, key: int) -> Holding | None:
        held = self._live.pop(key, None)
        if held is not None:
            held.death = self._event
        return held

    def _hand_on(self, given: Tensor, result: Tensor) -> None:
        """Let a result stand for the tensor that was waited for: on real tensors they are one."""
        old, new = (tensor.untyped_storage()._cdata for tensor in (given, result))
        if old != new and old in self._live:
            self._live[new] = self._live.pop(old)
            storage = result.untyped_storage()
            self._watches[new] = weakref.ref(storage, lambda _gone: self._died(new))

    def _died(self, key: int) -> None:
        self._watches.pop(key, None)
        self._close(key)

    def _resized(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key not in self._watches:
            self._watches[key] = weakref.ref(storage, lambda _gone: self._died(key))
        self._close(key)
        self._open(key, storage.nbytes(), term="unsharded", birth=self._event + 1, shape=())


def _older(place: Place | None) -> str:
    """Term of what is older than the step and was not entered: buckets where gradients accumulate."""
    return "communication_buffers" if place is not None and place.accumulates else "temporary"


def _parts(tensor: Tensor) -> list[Tensor]:
    """Return the plain tensors under a DTensor, or the tensor itself."""
    local = getattr(tensor, "_local_tensor", None)
    return [tensor.detach() if local is None else local]
