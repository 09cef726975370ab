"""The id recorder: what a step really ran, operation by operation, under the program's own ids.

One dispatch mode sees every operation of the step, on real and on fake tensors alike, of hand-written and of
library code alike. `record_step` returns one row for each operation that a program could name.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from playbook.program.ids import SKIPPED_OPERATIONS, Id
from playbook.runtime.collective_calls import Axes, CollectiveCall, axis_names, read_call, tensors_of
from playbook.runtime.owners import Owners, Place
from playbook.runtime.torch_private import DispatchMode, is_wrapper_type
from playbook.runtime.trace_memory import Ledger

LABEL_ENTER = ("profiler::_record_function_enter_new", "profiler::_record_function_enter")
LABEL_EXIT = "profiler::_record_function_exit"
REPLICAS = ("dp", "dp_replicate")
"""Axes over which gradients are reduced in buckets."""

SKIPPED_NAMESPACES = ("prim", "profiler")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One operation of a recorded step.

    Parameters
    ----------
    id
        Its id, by parts.
    payload_bytes
        Payload of a collective; 0 for anything else.
    allocated_bytes
        New storage that the operation's results hold.
    event
        Position among all operations of the step, the skipped ones included; the ledger's clock.
    """

    id: Id
    payload_bytes: int
    allocated_bytes: int
    event: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What `record_step` saw: the rows, and the ledger of storages if one was kept."""

    rows: tuple[Row, ...]
    places: tuple[Place | None, ...]
    ledger: Ledger | None

    @property
    def ids(self) -> tuple[str, ...]:
        """Text of every row's id, in order of execution."""
        return tuple(str(row.id) for row in self.rows)

    @property
    def collectives(self) -> tuple[Row, ...]:
        """The rows that communicate."""
        return tuple(row for row in self.rows if row.id.axis is not None)


class Recorder(DispatchMode):
    """Dispatch mode that turns the operations of a step into rows.

    Parameters
    ----------
    owners
        Says where the operation of the moment belongs.
    axes
        Mapping from group name to mesh axis, or one axis for every group.
    ledger
        Keeps births and deaths of storages; None to leave memory out.
    """

    def __init__(self, owners: Owners, axes: Any, ledger: Ledger | None = None) -> None:
        super().__init__()
        self.owners, self.axes, self.ledger = owners, axes, ledger
        self.rows: list[Row] = []
        self.places: list[Place | None] = []
        self._counts: Counter[tuple] = Counter()
        self._buckets: Counter[tuple[int, str]] = Counter()
        self._optimizer_seen = False

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        """Run one operation and note it; wrapper types such as DTensor unfold first."""
        if any(map(is_wrapper_type, types)):
            return NotImplemented
        name = func._schema.name
        self._follow_label(name, args)
        place = self.owners.place()
        event = len(self.places)
        self.places.append(place)
        if self.ledger is not None:
            self.ledger.before(event, name, place, (*args, *(kwargs or {}).values()))
        result = func(*args, **(kwargs or {}))
        allocated = self.ledger.after(args, result) if self.ledger is not None else 0
        call = read_call(name, args, result, self.axes)
        if call is not None and call.op in ("send", "receive"):
            place = self.owners.message(args) or place
        if call is not None and self.ledger is not None and place is not None and place.aside:
            self._mark_reduced(call, args)
        if place is not None and (call is not None or not self._left_out(name, place, args)):
            self._note(name, place, call, allocated)
        return result

    def _follow_label(self, name: str, args: tuple) -> None:
        if name in LABEL_ENTER:
            self.owners.enter_label(args[0])
        elif name == LABEL_EXIT:
            self.owners.leave_label()

    def _left_out(self, name: str, place: Place, args: tuple) -> bool:
        """Whether no program names the operation; of the optimizer's, only the first stands for them all."""
        if name.partition("::")[0] in SKIPPED_NAMESPACES:
            return True
        if place.phase == "O":
            seen, self._optimizer_seen = self._optimizer_seen, True
            return seen
        return place.aside or skipped(name, args)

    def _note(self, name: str, place: Place, call: CollectiveCall | None, allocated: int) -> None:
        owner = place.owner if call is None else self._collective_owner(place, call.axis)
        op = call.op if call else "optimizer" if place.phase == "O" else operation_name(name)
        axis = call.axis if call else None
        key = (place.microbatch, place.phase, owner, op, axis)
        made = Id(
            microbatch=place.microbatch, phase=place.phase, owner=owner, op=op, axis=axis, k=self._counts[key]
        )
        self._counts[key] += 1
        payload, event = call.payload_bytes if call else 0, len(self.places) - 1
        self.rows.append(Row(id=made, payload_bytes=payload, allocated_bytes=allocated, event=event))

    def _mark_reduced(self, call: CollectiveCall, args: tuple) -> None:
        """What FSDP's reduction gives out is a shard of the gradients."""
        if call.op == "reduce_scatter" and self.ledger is not None:
            for tensor in tensors_of(args[0]):
                self.ledger.mark(tensor, "gradients")

    def _collective_owner(self, place: Place, axis: str | None) -> str:
        """Owner of a collective: its block, for whose sake it runs, or the next bucket of its stage and
        micro-batch."""
        if not place.outside or place.phase == "F" or axis not in REPLICAS:
            return block_of(place.owner)
        among = place.microbatch, self.owners.stage
        number = self._buckets[among]
        self._buckets[among] += 1
        return f"bucket{number}"


def record_step(
    step: Callable[[], Any], module: nn.Module, axes: Axes, *, ledger: Ledger | None = None
) -> Record:
    """Run one step and return what it did, row by row.

    Parameters
    ----------
    step
        The step: forward, backward and optimizer of every micro-batch, called without arguments. Let two
        steps run before the one that is recorded: they build buckets, buffers and optimizer states.
    module
        The model as the step calls it: each of its forwards is a micro-batch.
    axes
        Which axis each process group is: a mesh with named dims, a mapping from group names, one axis.
    ledger
        Keeps births and deaths of storages as well; None for rows only.

    Returns
    -------
    Record
        Rows in the order of execution, without the operations of `SKIPPED_OPERATIONS`.
    """
    owners = Owners(module)
    with recording(owners, axes, ledger) as recorder:
        step()
    return Record(rows=tuple(recorder.rows), places=tuple(recorder.places), ledger=ledger)


@contextmanager
def recording(owners: Owners, axes: Axes, ledger: Ledger | None = None) -> Iterator[Recorder]:
    """Record while the context is open; the recorder holds the rows so far."""
    recorder = Recorder(owners, axis_names(axes), ledger)
    with owners.following():
        if ledger is None:
            with recorder:
                yield recorder
        else:
            with ledger.watching(), recorder:
                yield recorder


def operation_name(name: str) -> str:
    """Name that ids use for a dispatcher name: no namespace, attention kernels folded.

    Examples
    --------
    >>> operation_name("aten::_scaled_dot_product_flash_attention_for_cpu_backward")
    'sdpa_backward'
    """
    op = name.partition("::")[2]
    if op.startswith("_scaled_dot_product_"):
        return "sdpa_backward" if op.endswith("_backward") else "sdpa"
    return op


def skipped(name: str, args: tuple = ()) -> bool:
    """Whether an operation that does not communicate is left out of every join.

    So is a `cat` of parts of one tensor, as DTensor lays a gathered or scattered dim out.
    """
    op = name.partition("::")[2]
    if op == "cat" and one_storage(args[0]):
        return True
    return op in SKIPPED_OPERATIONS


def one_storage(tensors: Sequence[Tensor]) -> bool:
    """Whether all tensors are views of one storage."""
    return len({tensor.untyped_storage()._cdata for tensor in tensors}) == 1


def block_of(owner: str) -> str:
    """Fold a module inside a layer to the layer; leave any other as it is.

    Examples
    --------
    >>> block_of("layers.3.self_attn.o_proj"), block_of("embed_tokens")
    ('layers.3', 'embed_tokens')
    """
    parts = owner.split(".")
    return ".".join(parts[:2]) if parts[0] == "layers" else owner
