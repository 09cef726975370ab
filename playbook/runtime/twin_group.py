"""The twin's process group: one process stands for any rank of any world, and no other rank is there.

Collectives do what they would if every rank had this rank's values: outputs hold real numbers of the right
size, never what lay in memory before. They take the modelled time on the group's own stream, and are waited
for as NCCL's are, by streams and not by the processor.
"""

# pyright: reportIncompatibleMethodOverride=false, reportAssignmentType=false
# (torch hands arguments over by position, and has had other names for them in every version)

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from playbook.runtime.twin_values import bytes_of, no_wait, nothing, scale, tile

MESSAGE_STD = 0.02
"""Standard deviation of what arrives from a rank that is not there."""


class Clock(Protocol):
    """What makes a collective take its time."""

    def run(
        self, seconds: float, fill: Callable[[], None], tensors: Sequence[Tensor], in_order: bool
    ) -> torch.futures.Future[Any]:
        """Fill the outputs, take so long, and say when it is done; `in_order` on the caller's own stream."""
        ...


Wait = Callable[[Tensor], float]
"""Seconds until the message that fills a room is there."""

Price = Callable[[str, int, Sequence[int]], float]
"""Seconds of a collective by its name, payload in bytes and the global ranks that take part."""


class TwinGroup(dist.ProcessGroup):
    """A group of ranks as one of them sees it.

    Parameters
    ----------
    rank
        This rank's number in the group.
    members
        Global ranks of the group, in order.
    clock
        Runs what a collective does for its time.
    price
        How long that is.
    wait_s
        How long a receive waits for its message at least.

    Notes
    -----
    Payload as everywhere here: the input of all-reduce, reduce-scatter and all-to-all, the output of
    all-gather, the message of a send. torch 2.13 calls the single-tensor forms by other names than 2.11.
    """

    def __init__(
        self, *, rank: int, members: Sequence[int], clock: Clock, price: Price, wait_s: Wait = no_wait
    ) -> None:
        super().__init__(rank, len(members))  # pyright: ignore[reportCallIssue]
        self.members, self._rank, self._clock, self._price = tuple(members), rank, clock, price
        self._wait_s = wait_s
        self._name, self._description = "", ""

    def rank(self) -> int:
        """This rank's number in the group."""
        return self._rank

    def size(self) -> int:
        """Ranks in the group."""
        return len(self.members)

    def getBackendName(self) -> str:  # noqa: N802  # torch's name
        """Name of the backend."""
        return "twin"

    def _set_group_name(self, name: str) -> None:
        self._name = name

    def _set_group_desc(self, description: str) -> None:
        self._description = description

    @property
    def group_name(self) -> str:
        """Name under which torch knows the group."""
        return self._name

    @property
    def group_desc(self) -> str:
        """What the group is for."""
        return self._description

    def allreduce(self, tensors: Sequence[Tensor], options: Any = None) -> dist.Work:
        """Sum, average or pick over equal ranks, in place."""
        factor = self._factor(options)

        def fill() -> None:
            for tensor in tensors:
                scale(tensor, factor)

        return self._go("all_reduce", bytes_of(tensors), fill, list(tensors), options)

    def allreduce_coalesced(self, tensors: Sequence[Tensor], options: Any = None) -> dist.Work:
        """Several all-reduces as one."""
        return self.allreduce(tensors, options)

    def reduce(self, tensors: Sequence[Tensor], options: Any = None) -> dist.Work:
        """As all-reduce, at half its price: only one rank gets the result."""
        factor = self._factor(options)

        def fill() -> None:
            for tensor in tensors:
                scale(tensor, factor)

        return self._go("reduce_scatter", bytes_of(tensors), fill, list(tensors), options)

    def broadcast(self, tensors: Sequence[Tensor], options: Any = None) -> dist.Work:
        """Leave the values: equal ranks have the root's."""
        return self._go("broadcast", bytes_of(tensors), nothing, list(tensors), options)

    def allgather(
        self, outputs: Sequence[Sequence[Tensor]], inputs: Sequence[Tensor], options: Any = None
    ) -> dist.Work:
        """Copy this rank's tensor to every place of the list."""
        pairs = [(out, given) for outs, given in zip(outputs, inputs, strict=True) for out in outs]
        return self._copy("all_gather", pairs, bytes_of(out for out, _ in pairs), options)

    def all_gather_single(self, output: Tensor, given: Tensor, options: Any = None) -> dist.Work:
        """Repeat this rank's tensor over the whole output."""
        return self._copy("all_gather", [(output, given)], output.nbytes, options)

    def all_gather_single_coalesced(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], options: Any = None
    ) -> dist.Work:
        """Several all-gathers as one."""
        return self._copy("all_gather", list(zip(outputs, inputs, strict=True)), bytes_of(outputs), options)

    def reduce_scatter(
        self, outputs: Sequence[Tensor], inputs: Sequence[Sequence[Tensor]], options: Any = None
    ) -> dist.Work:
        """Reduce this rank's own entry of the list."""
        pairs = [(out, given[self._rank]) for out, given in zip(outputs, inputs, strict=True)]
        size = bytes_of(tensor for given in inputs for tensor in given)
        return self._copy("reduce_scatter", pairs, size, options, self._factor(options))

    def reduce_scatter_single(self, output: Tensor, given: Tensor, options: Any = None) -> dist.Work:
        """Reduce this rank's own part of the input."""
        return self.reduce_scatter_single_coalesced([output], [given], options)

    def reduce_scatter_single_coalesced(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], options: Any = None
    ) -> dist.Work:
        """Several reduce-scatters as one."""
        pairs = [(out, self._share(given)) for out, given in zip(outputs, inputs, strict=True)]
        return self._copy("reduce_scatter", pairs, bytes_of(inputs), options, self._factor(options))

    def all_to_all_single(
        self,
        output: Tensor,
        given: Tensor,
        output_sizes: Sequence[int],
        input_sizes: Sequence[int],
        options: Any = None,
    ) -> dist.Work:
        """Every rank sends what this one sends itself, so often as there is room for."""
        own = given.split(list(input_sizes))[self._rank] if input_sizes else self._share(given)
        return self._copy("all_to_all", [(output, own if own.numel() else given)], given.nbytes, options)

    def alltoall(self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], options: Any = None) -> dist.Work:
        """Every rank sends what this one sends itself."""
        pairs = [(out, inputs[self._rank]) for out in outputs]
        return self._copy("all_to_all", pairs, bytes_of(inputs), options)

    def send(self, tensors: Sequence[Tensor], peer: int, tag: int) -> dist.Work:
        """Take the time of one message."""
        return self._go("send", bytes_of(tensors), nothing, list(tensors), None)

    def recv(self, tensors: Sequence[Tensor], peer: int, tag: int) -> dist.Work:
        """Fill the room with normal values: the sender is not there."""

        def fill() -> None:
            for tensor in tensors:
                if tensor.is_floating_point():
                    tensor.data.normal_(0.0, MESSAGE_STD)
                else:
                    tensor.data.zero_()

        wait_s = max(map(self._wait_s, tensors), default=0.0)
        return self._go("receive", bytes_of(tensors), fill, list(tensors), None, wait_s)

    def barrier(self, opts: Any = None) -> dist.Work:
        """Nobody else to wait for."""
        return self._go("barrier", 0, nothing, [], opts)

    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    allgather_coalesced = allgather
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single

    def _share(self, tensor: Tensor) -> Tensor:
        return tensor.reshape(-1).chunk(self.size())[self._rank]

    def _factor(self, options: Any) -> float:
        """What a reduction over equal ranks multiplies by."""
        return float(self.size()) if options is None or options.reduceOp == dist.ReduceOp.SUM else 1.0

    def _copy(
        self,
        op: str,
        pairs: Sequence[tuple[Tensor, Tensor]],
        payload: int,
        options: Any,
        factor: float = 1.0,
    ) -> dist.Work:
        def fill() -> None:
            for out, given in pairs:
                tile(out, given)
                scale(out, factor)

        return self._go(op, payload, fill, [tensor for pair in pairs for tensor in pair], options)

    def _go(
        self,
        op: str,
        payload: int,
        fill: Callable[[], None],
        tensors: list[Tensor],
        options: Any,
        least_s: float = 0.0,
    ) -> dist.Work:
        seconds = self._price(op, payload, self.members) if self.size() > 1 else 0.0
        seconds = max(seconds, least_s)
        in_order = not getattr(options, "asyncOp", True)
        with torch.no_grad():
            done = self._clock.run(seconds, fill, tensors, in_order)
        return torch._C._distributed_c10d._create_work_from_future(done)  # pyright: ignore[reportAttributeAccessIssue]
