"""Data parallelism on real ranks: every rank holds the model, gradients are averaged in buckets.

Communicates over dp, per bucket and micro-batch: one all-reduce, together the bytes of all gradients.
"""

# pyright: reportOptionalMemberAccess=false
# (torch declares a gradient as optional; here it is there)

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any
from weakref import proxy

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from playbook.models.transformer import Transformer
from playbook.runtime.part import Part, Place
from playbook.spec import Scenario

BUCKET_BYTES = 25 * 2**20
FIRST_BUCKET_BYTES = 2**20
"""PyTorch's default limits; the first bucket is small, so that communication starts early."""


class Bucket:
    """Gradients that travel together: sent when the last of them is there, while backward goes on."""

    def __init__(self, parameters: list[nn.Parameter], dp: Place) -> None:
        self.parameters, self.dp = parameters, dp
        self.arrived, self.reduce, self.in_flight = 0, True, []
        for parameter in parameters:  # by proxy: a hook that held the bucket would keep both alive for ever
            parameter.register_post_accumulate_grad_hook(partial(Bucket.count_in, proxy(self)))

    def count_in(self, _: Tensor) -> None:
        """Count one gradient in; the last one starts the all-reduce."""
        self.arrived = (self.arrived + 1) % len(self.parameters)
        if self.reduce and self.arrived == 0:
            mean = torch.cat([p.grad.flatten() for p in self.parameters]).div_(self.dp.ranks)
            self.in_flight.append((dist.all_reduce(mean, group=self.dp.group, async_op=True), mean))

    def finish(self) -> None:
        """Wait for the means and put them where the optimizer looks."""
        while self.in_flight:
            work, mean = self.in_flight.pop()
            work.wait()
            put_back(mean, self.parameters)


def buckets_of(module: nn.Module, limit_bytes: int) -> Iterator[list[nn.Parameter]]:
    """Group parameters, last first, as gradients arrive; a bucket closes once it has reached its limit."""
    bucket, limit = [], min(limit_bytes, FIRST_BUCKET_BYTES)
    for parameter in reversed(list(module.parameters())):
        bucket.append(parameter)
        if sum(p.nbytes for p in bucket) >= limit:
            yield bucket
            bucket, limit = [], limit_bytes
    if bucket:
        yield bucket


def put_back(mean: Tensor, parameters: list[nn.Parameter]) -> None:
    """Copy a bucket's averaged gradients to where the optimizer looks for them."""
    for parameter, gradient in zip(parameters, mean.split([p.numel() for p in parameters]), strict=True):
        parameter.grad.copy_(gradient.view_as(parameter))


def by_hand(module: Transformer, dp: Place, *, bucket_bytes: int = BUCKET_BYTES) -> Part:
    """Give every rank the average of the ranks' gradients, bucket by bucket."""
    buckets = [Bucket(parameters, dp) for parameters in buckets_of(module, bucket_bytes)]

    def synchronise(now: bool) -> None:
        for bucket in buckets:
            bucket.reduce = now

    def finish() -> None:
        for bucket in buckets:
            bucket.finish()

    return Part(module=module, splits_batch=True, finish=finish, synchronise=synchronise)


BY_HAND = (Bucket, buckets_of, put_back, by_hand)
"""What a chapter shows."""


def by_library(module: Transformer, dp: Place, *, bucket_bytes: int = BUCKET_BYTES) -> Part:
    """Do the same by `DistributedDataParallel`, whose reducer is C++ and keeps its buckets between steps."""
    # Replicas are seeded alike, so nothing needs to be sent before the first step.
    limit: dict[str, Any] = {} if bucket_bytes == BUCKET_BYTES else {"bucket_cap_mb": bucket_bytes / 2**20}
    replica = DistributedDataParallel(module, process_group=dp.group, init_sync=False, **limit)

    def synchronise(now: bool) -> None:
        replica.require_backward_grad_sync = now

    return Part(module=replica, splits_batch=True, synchronise=synchronise)


def keywords(scenario: Scenario, own: Mapping[str, Any], by_hand: bool) -> dict[str, Any]:
    """Levers of both for a scenario and the strategy's own levers."""
    return dict(own)


def one_too_far(put_back: Callable[..., None]) -> Callable[..., None]:
    """Copy means back one element too far."""
    return lambda mean, parameters: put_back(mean.roll(1), parameters)


WRONG_OFFSET = ("put_back", one_too_far)
"""What says where a rank's share lies, and what makes it wrong: a planted fault."""
