"""A world of any size inside one process: fake tensors over a fake process group, as any of its ranks.

Tensors have sizes and no data, collectives return at once. Two things need a hand: DDP reads back the order
of its buckets, which has to be real data, and it waits for a result that the fake group does not give.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import GradBucket
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.nn.parallel import DistributedDataParallel

from playbook.runtime.collective_calls import tensors_of
from playbook.runtime.part import Place
from playbook.runtime.torch_private import DispatchMode, part, quiet

DRY_RUN = "_propagate_tensor_meta_non_cached"
"""Method of DTensor's sharding propagator that runs an operation for the sizes of its results."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FakePlace(Place):
    """A place in a fake world; its mesh was made beforehand, of real numbers, as a part of one for all."""

    submesh: DeviceMesh

    @property
    def mesh(self) -> DeviceMesh:
        """The ranks of the axis as a named one-dimensional mesh."""
        return self.submesh


class RealNumbers(DispatchMode):
    """Keeps real what torch reads back: ranks of a mesh, and the order of DDP's buckets (32-bit integers)."""

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        """Run an operation on real tensors only outside fake mode, any other as it is."""
        kwargs = kwargs or {}
        lifted = func._schema.name == "aten::lift_fresh"
        if kwargs.get("dtype") is torch.int32 or (all_real(args) and not lifted):
            with part("real_tensors")():
                return func(*args, **kwargs)
        return func(*args, **kwargs)


def all_real(args: tuple) -> bool:
    """Whether there are tensors among the arguments, all of them whole numbers that hold data."""
    tensors = list(tensors_of(args))
    return bool(tensors) and all(type(t) is Tensor and not t.is_floating_point() for t in tensors)


@contextmanager
def fake_world(degrees: Mapping[str, int], rank: int) -> Iterator[dict[str, Place]]:
    """Be one rank of a world while the context is open: fake tensors only, and a place on every axis.

    Parameters
    ----------
    degrees
        Ranks on each axis, outermost first.
    rank
        Which rank to be.
    """
    world = math.prod(degrees.values())
    dist.init_process_group("fake", rank=rank, world_size=world, store=part("FakeStore")())
    try:
        mesh = init_device_mesh("cpu", tuple(degrees.values()), mesh_dim_names=tuple(degrees))
        places = {axis: _place(mesh, axis) for axis in degrees}
        # Without a fake kernel torch would run the real one, on zeros of the true size.
        fake = part("FakeTensorMode")(allow_non_fake_inputs=True, allow_fallback_kernels=False)
        with quiet(), fake, RealNumbers(), reducer_over_fake_group(), unseen_dry_runs():
            yield places
    finally:
        part("forget_shardings")()  # they hold meshes, whose groups end here
        dist.destroy_process_group()


def _place(mesh: DeviceMesh, axis: str) -> Place:
    return FakePlace(group=mesh.get_group(axis), device=torch.device("cpu"), axis=axis, submesh=mesh[axis])


@contextmanager
def reducer_over_fake_group() -> Iterator[None]:
    """Give every DDP made meanwhile a hook that averages a bucket as the default does, and does not wait."""
    plain: Callable[..., None] = DistributedDataParallel.__init__

    def init(self: DistributedDataParallel, *args: Any, **kwargs: Any) -> None:
        plain(self, *args, **kwargs)
        self.register_comm_hook(self.process_group, average_bucket)

    DistributedDataParallel.__init__ = init
    try:
        yield
    finally:
        DistributedDataParallel.__init__ = plain


@contextmanager
def unseen_dry_runs() -> Iterator[None]:
    """Keep DTensor's dry runs out of sight: it runs new operations once on tensors of the whole size."""
    propagator, without_modes = part("ShardingPropagator"), part("without_modes")
    plain = getattr(propagator, DRY_RUN)

    def dry_run(self: Any, *args: Any, **kwargs: Any) -> Any:
        with without_modes():
            return plain(self, *args, **kwargs)

    setattr(propagator, DRY_RUN, dry_run)
    try:
        yield
    finally:
        setattr(propagator, DRY_RUN, plain)


def average_bucket(group: dist.ProcessGroup, bucket: GradBucket) -> torch.futures.Future[Tensor]:
    """Average one bucket over the group: all-reduce of the bucket divided by the number of ranks."""
    buffer = bucket.buffer().div_(group.size())
    dist.all_reduce(buffer, group=group)
    done: torch.futures.Future[Tensor] = torch.futures.Future()
    done.set_result(buffer)
    return done
