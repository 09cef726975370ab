"""A step of a pipeline without its messages, so that a GPU has all that the step needs before messages wait.

While a message waits for its receiver it runs on the GPU, and what CUDA does for the first use of a kernel or
for memory that its allocator does not have yet may wait for all that runs. Two ranks in that state wait for
each other: a step that a GPU sees for the first time can hang where the second one would not.
"""

from collections.abc import Sequence

from torch import Tensor, nn

from playbook.models.put_off import Products, put_off
from playbook.models.transformer import loss_of
from playbook.program.schedule import Schedule
from playbook.runtime.part import MicroBatch
from playbook.runtime.pipeline_costs import inputs_of, settle
from playbook.schedules import Action


def rehearse(
    stages: nn.ModuleDict,
    schedule: Schedule,
    rank: int,
    microbatches: Sequence[MicroBatch],
    *,
    split: bool,
) -> None:
    """Run a rank's actions in their order on made-up messages: the same kernels, and as much memory at once.

    Parameters
    ----------
    stages
        What the rank holds, by number; their gradients are gone afterwards.
    schedule, rank
        Whose order.
    microbatches
        All of the step; a stage that embeds and one with the loss take theirs.
    split
        Whether I and W run apart. Otherwise I is the whole backward, and W nothing.
    """
    scene = Scene(stages, schedule, microbatches, split)
    for action in schedule.orders[rank]:
        scene.take(action)
    for parameter in stages.parameters():
        parameter.grad = None
    settle(microbatches[0][0].device)


class Scene:
    """What is alive between the actions of a rehearsal."""

    def __init__(
        self, stages: nn.ModuleDict, schedule: Schedule, microbatches: Sequence[MicroBatch], split: bool
    ) -> None:
        self.stages, self.schedule, self.microbatches = stages, schedule, microbatches
        self.split, self.later = split, put_off(stages, wanted=split)
        self.outputs: dict[tuple[int, int], tuple[Tensor, Tensor, Tensor | None]] = {}
        self.products: dict[tuple[int, int], Products] = {}
        self.messages: list[Tensor] = []

    def take(self, action: Action) -> None:
        """Run one action; what it would send stays alive, as the message would."""
        key = action.stage, action.microbatch
        if action.kind == "F":
            self.outputs[key] = self._forward(action)
        elif action.kind == "W":
            if self.split:
                self.products.pop(key).compute()
        else:
            self._backward(key, apart=self.split and action.kind == "I")

    def _forward(self, action: Action) -> tuple[Tensor, Tensor, Tensor | None]:
        stage, microbatch = self.stages[str(action.stage)], self.microbatches[action.microbatch]
        last = action.stage in self.schedule.last_stages
        x, gradient = inputs_of(stage, microbatch, last)
        y = stage(x)
        if not last:
            self.messages.append(y.detach())
        return x, loss_of(y, microbatch[1]) / len(self.microbatches) if last else y, gradient

    def _backward(self, key: tuple[int, int], apart: bool) -> None:
        x, y, gradient = self.outputs.pop(key)
        with self.later.putting_off(apart) as products:
            y.backward(gradient)
        if apart:
            self.products[key] = products
        if x.grad is not None:
            self.messages.append(x.grad)
