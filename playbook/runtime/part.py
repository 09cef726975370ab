"""What every strategy's code on a rank is given, and what it gives back.

A strategy gets a `Place` (process group, device) and makes a `Part`: what this rank holds of the model and
how it runs one step's micro-batches. Nothing here is global: two places can live in one process.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from playbook.models.transformer import loss_of
from playbook.runtime.owners import owner_name

MicroBatch = tuple[Tensor, Tensor]
"""Tokens and labels, each (B, S)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a rank of a strategy stands: one mesh axis of one process.

    Parameters
    ----------
    group
        Process group of the ranks that work together.
    device
        Device of this rank's tensors.
    axis
        Name of the mesh axis that the group is, one of `playbook.tables.AXES`.
    """

    group: dist.ProcessGroup
    device: torch.device
    axis: str

    @property
    def rank(self) -> int:
        """This rank's number in the group."""
        return self.group.rank()

    @property
    def ranks(self) -> int:
        """Ranks in the group."""
        return self.group.size()

    @property
    def over_nccl(self) -> bool:
        """Whether NCCL carries this device's tensors; over gloo not everything can be sent from a GPU."""
        return self.device.type == "cuda" and "nccl" in str(dist.get_backend_config(self.group))

    @property
    def mesh(self) -> DeviceMesh:
        """The same ranks as a named one-dimensional mesh, which the library's strategies take."""
        return DeviceMesh.from_group(self.group, self.device.type, mesh_dim_names=(self.axis,))


def world(device: str, axis: str) -> Place:
    """Place of this process among all processes of the job, as one mesh axis.

    Raises
    ------
    ValueError
        If no process group is up.
    """
    group = dist.group.WORLD
    if group is None:
        raise ValueError(
            "no process group is up: run this in a pool, under torchrun, or call init_process_group"
        )
    return Place(group=group, device=torch.device(device), axis=axis)


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """How the ranks' pieces make a whole tensor.

    Parameters
    ----------
    dim
        They lie side by side along this dim; None if the whole is their sum.
    size
        Elements of the whole along `dim`; pieces may add up to more, which is padding.
    copies
        Neighbouring ranks that hold the same piece.
    """

    dim: int | None
    size: int
    copies: int = 1


class Watch:
    """Follows a step: which micro-batch, phase and action is running. This one looks away."""

    def enter(self, microbatch: int, phase: str) -> None:
        """Say that `phase` (F, B or O) of a micro-batch begins; micro-batch -1 is the optimizer step."""

    def during(self, kind: str, action: str, message: Tensor | None = None) -> AbstractContextManager[object]:
        """Enclose what a pipeline rank does for an action (its id).

        Kinds are forward, backward, backward_input and backward_weight; wait, for a message; send, and
        receive where one is posted only; drain, until one has left; collective, a sum over ranks.
        """
        return nullcontext()


LOOK_AWAY = Watch()


@dataclass(kw_only=True)
class Part:
    """What one rank holds of a model, and how it works on it.

    Parameters
    ----------
    module
        Its parameters are the tensors that this rank's optimizer updates, under the names of the whole model.
    split
        How a parameter, and its gradient, is split among the ranks, by its name; None for one that is whole
        here. A distributed tensor says it itself.
    finish
        Called after the backward of a micro-batch: wait for what is still in flight.
    synchronise
        Called before a micro-batch, with False where its gradients need not be reduced yet.
    run
        Runs all micro-batches of a step, in place of `run_microbatches`.
    name_of
        Turns a parameter's name in `module` into that of the whole model; by default it drops what wrappers
        add.
    close
        Called when it is no longer needed: leave the groups that were made for it.
    splits_batch
        Whether every rank takes other sequences of the batch; if not, all take the same.
    by_action
        Whether it works action by action, so that messages are named by actions and a step has a timeline.
    """

    module: nn.Module
    split: Callable[[str], Split | None] = lambda name: None
    finish: Callable[[], None] = lambda: None
    synchronise: Callable[[bool], None] = lambda now: None
    run: Callable[[Sequence[MicroBatch], Watch], Tensor | None] | None = None
    name_of: Callable[[str], str] = owner_name
    close: Callable[[], None] = lambda: None
    splits_batch: bool = False
    by_action: bool = False

    def forward_backward(self, microbatches: Sequence[MicroBatch], watch: Watch = LOOK_AWAY) -> Tensor | None:
        """Forward and backward of a step's micro-batches; the mean loss, or None where this rank has none."""
        return (self.run or self.run_microbatches)(microbatches, watch)

    def run_microbatches(self, microbatches: Sequence[MicroBatch], watch: Watch) -> Tensor:
        """Accumulate gradients over the micro-batches, one after the other."""
        losses = []
        for index, (tokens, labels) in enumerate(microbatches):
            self.synchronise(index == len(microbatches) - 1)
            watch.enter(index, "F")
            loss = loss_of(self.module(tokens), labels) / len(microbatches)
            watch.enter(index, "B")
            loss.backward()
            self.finish()
            losses.append(loss.detach())
        return torch.stack(losses).sum()

    def parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Parameters under the names of the whole model, in an order that all ranks share."""
        for name, parameter in self.module.named_parameters():
            yield self.name_of(name), parameter
