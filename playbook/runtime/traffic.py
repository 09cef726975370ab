"""The traffic counter: every collective and message of a step, as torch's dispatcher sees it.

It sees hand-written and library code alike, the C++ reducer of DDP included. It is off while time is taken.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from playbook.program.traffic import WIRE, group_size
from playbook.runtime.collective_calls import Axes, axis_names, read_call, tensors_of
from playbook.runtime.part import Watch
from playbook.runtime.record import Record
from playbook.runtime.torch_private import DispatchMode, is_wrapper_type


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One collective or message.

    Parameters
    ----------
    id
        Its id; empty if nobody said whose it is.
    phase
        F, B or O.
    axis
        Mesh axis.
    collective
        Name, as in `playbook.program.traffic.WIRE`.
    payload_bytes
        Input of all-reduce, reduce-scatter and all-to-all, output of all-gather, the message of a send.
    """

    id: str
    phase: str
    axis: str
    collective: str
    payload_bytes: int


class TrafficCounter(DispatchMode, Watch):
    """Counts calls while it is open.

    Parameters
    ----------
    axes
        Which axis each process group is.

    Notes
    -----
    As a `Watch` it learns which pipeline action a message belongs to: the message's memory is its name tag.
    """

    def __init__(self, axes: Axes) -> None:
        super().__init__()
        self.calls: list[Call] = []
        self._axes = axis_names(axes)
        self._tags: dict[int, str] = {}
        self._seen: Counter[str] = Counter()

    @contextmanager
    def during(self, kind: str, action: str, message: Tensor | None = None) -> Iterator[None]:
        """Note whose a message is that is about to be sent or received."""
        if message is not None:
            self._tags[message.data_ptr()] = action
        yield

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        """Run one operation and count it if it communicates; wrapper types such as DTensor unfold first."""
        if any(map(is_wrapper_type, types)):
            return NotImplemented
        result = func(*args, **(kwargs or {}))
        call = read_call(func._schema.name, args, result, self._axes)
        if call is not None:
            action = self._action(args)
            self._note(action, call.op, call.axis or "", call.payload_bytes)
        return result

    def _action(self, args: tuple) -> str:
        tensor = next(tensors_of(args[0]), None)
        return "" if tensor is None else self._tags.get(tensor.data_ptr(), "")

    def _note(self, action: str, op: str, axis: str, payload_bytes: int) -> None:
        stem = f"{action}/{op}@{axis}" if action else ""
        made = f"{stem}#{self._seen[stem]}" if stem else ""
        self._seen[stem] += 1
        phase = action.split("/")[1] if action else "F"
        self.calls.append(Call(id=made, phase=phase, axis=axis, collective=op, payload_bytes=payload_bytes))


def calls_of(record: Record) -> list[Call]:
    """Return the collectives of a recorded step."""
    return [
        Call(
            id=str(row.id),
            phase=row.id.phase,
            axis=row.id.axis or "",
            collective=row.id.op,
            payload_bytes=row.payload_bytes,
        )
        for row in record.collectives
    ]


def wire_bytes(call: Call, ranks: int) -> float:
    """Bytes that a rank sends for one call in a ring of `ranks`."""
    return (
        WIRE[call.collective](group_size(call.collective, call.axis, {call.axis: ranks})) * call.payload_bytes
    )


def traffic_rows(calls: Iterable[Call], ranks: int, *, step: int, source: str) -> list[dict[str, Any]]:
    """Return rows of the traffic table."""
    return [
        {
            "op": call.id,
            "step": step,
            "phase": call.phase,
            "axis": call.axis,
            "collective": call.collective,
            "count": 1,
            "payload_bytes": call.payload_bytes,
            "wire_bytes": wire_bytes(call, ranks),
            "source": source,
        }
        for call in calls
    ]


def traffic_summary(calls: Iterable[Call], ranks: int) -> dict[str, Any]:
    """Sum up what a rank sends: payload and wire bytes, and calls of each kind; a receive sends nothing."""
    sent = [call for call in calls if call.collective != "receive"]
    return {
        "payload_bytes": sum(call.payload_bytes for call in sent),
        "wire_bytes": sum(wire_bytes(call, ranks) for call in sent),
        "calls": dict(Counter(call.collective for call in sent)),
    }
