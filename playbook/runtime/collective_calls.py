"""Collectives as torch's dispatcher sees them: the name, the axis and the payload of one call."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from playbook.runtime.torch_private import group_name

RESULT = -1
"""The payload is what the call returns, not one of its arguments."""

CALLS: dict[str, tuple[str, int]] = {
    "c10d::allreduce_": ("all_reduce", 0),
    "c10d::allreduce_coalesced_": ("all_reduce", 0),
    "c10d::_allgather_base_": ("all_gather", 0),
    "c10d::allgather_": ("all_gather", 0),
    "c10d::allgather_into_tensor_coalesced_": ("all_gather", 0),
    "c10d::_reduce_scatter_base_": ("reduce_scatter", 1),
    "c10d::reduce_scatter_": ("reduce_scatter", 1),
    "c10d::reduce_scatter_tensor_coalesced_": ("reduce_scatter", 1),
    "c10d::alltoall_base_": ("all_to_all", 1),
    "c10d::alltoall_": ("all_to_all", 1),
    "c10d::broadcast_": ("broadcast", 0),
    "c10d::reduce_": ("reduce", 0),
    "c10d::gather_": ("gather", 1),
    "c10d::scatter_": ("scatter", 0),
    "c10d::send": ("send", 0),
    "c10d::recv_": ("receive", 0),
    "_c10d_functional::all_reduce": ("all_reduce", 0),
    "_c10d_functional::all_reduce_": ("all_reduce", 0),
    "_c10d_functional::all_gather_into_tensor": ("all_gather", RESULT),
    "_c10d_functional::all_gather_into_tensor_out": ("all_gather", RESULT),
    "_c10d_functional::reduce_scatter_tensor": ("reduce_scatter", 0),
    "_c10d_functional::reduce_scatter_tensor_out": ("reduce_scatter", 0),
    "_c10d_functional::all_to_all_single": ("all_to_all", 0),
    "_c10d_functional::broadcast": ("broadcast", 0),
    "_c10d_functional::broadcast_": ("broadcast", 0),
    "_dtensor::shard_dim_alltoall": ("all_to_all", 0),
}
"""Dispatcher name of each call, with the name that ids use and the argument that holds the payload.

Payload as everywhere here: the input of all-reduce, reduce-scatter and all-to-all, the output of all-gather,
the message of a send."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveCall:
    """One collective: its name in ids, its mesh axis and its payload in bytes."""

    op: str
    axis: str | None
    payload_bytes: int


Axes = Mapping[str, str] | str | DeviceMesh
"""Which axis a process group is: a mesh with named dims, a mapping from group names, or one axis for all."""


def axis_names(axes: Axes) -> Mapping[str, str] | str:
    """Reduce `axes` to a mapping from group name to axis, or to the one axis of every group."""
    if not isinstance(axes, DeviceMesh):
        return axes
    names = axes.mesh_dim_names
    if names is None:
        raise ValueError("the device mesh has no names for its dims; give mesh_dim_names=('dp', ...)")
    return {axes.get_group(dim).group_name: name for dim, name in enumerate(names)}


def read_call(name: str, args: tuple, result: Any, axes: Mapping[str, str] | str) -> CollectiveCall | None:
    """Return the collective that an operation was, or None if it was none."""
    known = CALLS.get(name)
    if known is None:
        return None
    op, index = known
    payload = result if index == RESULT else args[index]
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors_of(payload))
    return CollectiveCall(op=op, axis=_axis(args, axes), payload_bytes=size)


def tensors_of(value: Any) -> Iterator[Tensor]:
    """Yield the tensors in a value, through lists and tuples."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors_of(item)


def _axis(args: tuple, axes: Mapping[str, str] | str) -> str | None:
    """Axis of the call; its group is the last argument that names one (a reduction's name comes before)."""
    if isinstance(axes, str):
        return axes
    found = [axes[name] for name in map(group_name, args) if name is not None and name in axes]
    return found[-1] if found else None
