"""A world of any size on one device: the twin's group in torch's registry, and a place on every axis."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh

from playbook.program.timeline import ring_seconds
from playbook.runtime.fake_world import FakePlace
from playbook.runtime.part import Place
from playbook.runtime.torch_private import part, quiet
from playbook.runtime.twin_clock import GpuClock, Hold, NoClock, hold_nothing
from playbook.runtime.twin_group import Price, TwinGroup, Wait
from playbook.runtime.twin_values import no_wait
from playbook.spec import Cluster

BACKEND = "twin"

Maker = Callable[[int, Sequence[int]], TwinGroup]

_maker: ContextVar[Maker] = ContextVar("maker of the twin's groups")
"""torch makes groups by a function that it was given once, whichever world is open."""


class TwinPlace(FakePlace):
    """A place in the twin's world, whose group carries on a GPU what NCCL would."""

    @property
    def over_nccl(self) -> bool:
        """Whether tensors of a GPU can be sent."""
        return self.device.type == "cuda"


def cluster_price(cluster: Cluster) -> Price:
    """Price collectives by latency and bandwidth of the slowest link that a group's ranks use."""

    def price(op: str, payload_bytes: int, members: Sequence[int]) -> float:
        if op == "barrier":
            return 0.0
        nodes = {rank // cluster.gpus_per_node for rank in members}
        link = cluster.intra if len(nodes) == 1 else cluster.inter
        if op in ("send", "receive"):
            return link.seconds(payload_bytes)
        return ring_seconds(op, payload_bytes, len(members), link)

    return price


def free(op: str, payload_bytes: int, members: Sequence[int]) -> float:
    """No collective takes time."""
    return 0.0


class Network:
    """What collectives and messages take, which can be switched off.

    Parameters
    ----------
    price, wait_s
        As in `TwinGroup`.
    on
        Whether they take anything.
    """

    def __init__(self, price: Price, wait_s: Wait, on: bool) -> None:
        self.on, self._price, self._wait_s = on, price, wait_s

    def price(self, op: str, payload_bytes: int, members: Sequence[int]) -> float:
        """Seconds of a collective."""
        return self._price(op, payload_bytes, members) if self.on else 0.0

    def wait_s(self, room: Tensor) -> float:
        """Seconds until a message is there."""
        return self._wait_s(room) if self.on else 0.0


@contextmanager
def twin_world(
    degrees: Mapping[str, int],
    rank: int,
    device: torch.device,
    price: Price,
    hold: Hold = hold_nothing,
    wait_s: Wait = no_wait,
) -> Iterator[dict[str, Place]]:
    """Be one rank of a world while the context is open, on a real device.

    Parameters
    ----------
    degrees
        Ranks on each axis, outermost first.
    rank
        Which rank to be.
    device
        Where its tensors are: a CPU, or the GPU that is current. A rank is no number of a GPU here.
    price, hold
        What collectives cost, and what keeps a stream busy for so long.
    wait_s
        How long a receive waits for its message.
    """
    world = math.prod(degrees.values())

    def make(group_rank: int, members: Sequence[int]) -> TwinGroup:
        clock = GpuClock(device, hold) if device.type == "cuda" else NoClock()
        return TwinGroup(
            rank=group_rank, members=members or range(world), clock=clock, price=price, wait_s=wait_s
        )

    register()
    if device.type == "cuda":  # so that a mesh does not choose a GPU by the rank's number
        torch.cuda.init()
        torch.cuda.set_device(device)
    token = _maker.set(make)
    dist.init_process_group(BACKEND, rank=rank, world_size=world, store=part("FakeStore")())
    try:
        mesh = init_device_mesh(device.type, tuple(degrees.values()), mesh_dim_names=tuple(degrees))
        with quiet():
            yield {
                axis: TwinPlace(group=mesh.get_group(axis), device=device, axis=axis, submesh=mesh[axis])
                for axis in degrees
            }
    finally:
        part("forget_shardings")()  # they hold meshes, whose groups end here
        dist.destroy_process_group()
        _maker.reset(token)


def register() -> None:
    """Tell torch how the twin's groups are made, once a process."""
    if not hasattr(dist.Backend, BACKEND.upper()):
        dist.Backend.register_backend(BACKEND, _make_group, extended_api=True, devices=["cpu", "cuda"])


def _make_group(options: Any, _: Any) -> TwinGroup:
    return _maker.get()(options.group_rank, options.global_ranks_in_group)
