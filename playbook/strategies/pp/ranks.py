"""Pipeline parallelism on real ranks: every rank holds some stages, micro-batches pass through them.

Communicates over pp, per boundary between ranks and micro-batch: the hidden states in forward, their gradient
in backward, each of B · S · D elements.
"""

# pyright: reportOptionalMemberAccess=false
# (torch declares the work of a receive as optional)

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B

from playbook.models.transformer import Transformer, loss_of
from playbook.program.schedule import Schedule
from playbook.runtime.part import LOOK_AWAY, MicroBatch, Part, Place, Watch
from playbook.runtime.pipeline_executor import Wire
from playbook.runtime.pipeline_levers import schedule_of
from playbook.schedules import Action
from playbook.spec import Model, Scenario

LIBRARY: dict[str, Any] = {
    "gpipe": ScheduleGPipe,
    "1f1b": Schedule1F1B,
    "interleaved-1f1b": ScheduleInterleaved1F1B,
}
"""Our names of the schedules that the library runs too."""


def by_hand(stages: nn.ModuleDict, pp: Place, *, schedule: Schedule) -> Part:
    """Run this rank's actions in the schedule's order: receive, compute, send on."""
    wire = Wire(pp, schedule)

    def run(microbatches: Sequence[MicroBatch], watch: Watch) -> Tensor | None:
        alive, kept, sending, losses = {}, {}, [], []

        def receive(action: Action) -> Tensor | None:
            way = wire.source(action)
            if way.peer in (None, pp.rank):
                return kept.pop(way.tag, None)
            message = wire.message(microbatches[action.microbatch], stages)
            with watch.during("wait", action.id, message):
                dist.irecv(message, group=way.group, group_src=way.peer, tag=way.tag).wait()
            return message.to(pp.device)

        def send(action: Action, tensor: Tensor) -> None:
            way = wire.target(action)
            if way.peer == pp.rank:
                kept[way.tag] = tensor
            elif way.peer is not None:
                message = tensor.to(wire.memory)
                with watch.during("send", action.id, message):
                    sending.append(dist.isend(message, group=way.group, group_dst=way.peer, tag=way.tag))

        for action in schedule.orders[pp.rank]:
            arrived = receive(action)
            if action.kind == "F":
                tokens, labels = microbatches[action.microbatch]
                x = tokens if arrived is None else arrived.requires_grad_()
                with watch.during("forward", action.id):
                    y = stages[str(action.stage)](x)
                    if wire.target(action).peer is None:
                        losses.append(y := loss_of(y, labels) / len(microbatches))
                alive[action.stage, action.microbatch] = x, y
                send(action, y.detach())
            else:
                x, y = alive.pop((action.stage, action.microbatch))
                with watch.during("backward", action.id):
                    y.backward(arrived)
                send(action, x.grad)
        for work in sending:
            work.wait()
        return torch.stack(losses).sum().detach() if losses else None

    return Part(module=stages, run=run, name_of=without_stage, by_action=True)


BY_HAND = (by_hand,)
"""What a chapter shows."""


def hold(spec: Model, pp: Place, *, schedule: Schedule, stage_layers: Sequence[int]) -> nn.ModuleDict:
    """Make this rank's stages, keyed by their number; layers keep their numbers in the whole model."""
    firsts = [sum(stage_layers[:stage]) for stage in range(len(stage_layers))]
    own = [stage for stage, owner in enumerate(schedule.placement) if owner == pp.rank]
    return nn.ModuleDict(
        {
            str(stage): Transformer(spec, range(firsts[stage], firsts[stage] + stage_layers[stage]))
            for stage in own
        }
    )


def without_stage(name: str) -> str:
    """Drop the stage's number from a parameter's name."""
    return name.partition(".")[2]


class WatchedStage(PipelineStage):
    """The library's stage, which tells when an action computes and what it sends."""

    watch: Watch = LOOK_AWAY

    def forward_one_chunk(self, fwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
        """Run a micro-batch's forward."""
        with self.watch.during("forward", self._action("F", fwd_chunk_id).id):
            return super().forward_one_chunk(fwd_chunk_id, *args, **kwargs)

    def backward_one_chunk(self, bwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
        """Run a micro-batch's backward."""
        with self.watch.during("backward", self._action("B", bwd_chunk_id).id):
            return super().backward_one_chunk(bwd_chunk_id, *args, **kwargs)

    def get_fwd_recv_ops(self, fwd_chunk_id: int) -> list[dist.P2POp]:
        """List the messages that a forward waits for."""
        return self._told("receive", "F", fwd_chunk_id, super().get_fwd_recv_ops(fwd_chunk_id))

    def get_bwd_recv_ops(self, bwd_chunk_id: int) -> list[dist.P2POp]:
        """List the messages that a backward waits for."""
        return self._told("receive", "B", bwd_chunk_id, super().get_bwd_recv_ops(bwd_chunk_id))

    def get_fwd_send_ops(self, fwd_chunk_id: int) -> list[dist.P2POp]:
        """List the messages of a forward."""
        return self._told("send", "F", fwd_chunk_id, super().get_fwd_send_ops(fwd_chunk_id))

    def get_bwd_send_ops(self, bwd_chunk_id: int) -> list[dist.P2POp]:
        """List the messages of a backward."""
        return self._told("send", "B", bwd_chunk_id, super().get_bwd_send_ops(bwd_chunk_id))

    def _action(self, kind: str, microbatch: int) -> Action:
        return Action(self.stage_index, kind, microbatch)

    def _told(self, way: str, kind: str, microbatch: int, messages: list[dist.P2POp]) -> list[dist.P2POp]:
        for message in messages:
            with self.watch.during(way, self._action(kind, microbatch).id, message.tensor):
                pass
        return messages


def by_library(stages: nn.ModuleDict, pp: Place, *, schedule: Schedule) -> Part:
    """Do the same by torch.distributed.pipelining; its own order stands for the schedule's name.

    Raises
    ------
    ValueError
        If ranks share a GPU: the library sends CUDA tensors from rank to rank, and gloo dies of that.
    """
    if pp.device.type == "cuda" and not pp.over_nccl:
        raise ValueError("torch.distributed.pipelining sends CUDA tensors, which gloo cannot; use by='hand'")
    made = [
        WatchedStage(module, int(stage), len(schedule.placement), pp.device, group=pp.group)
        for stage, module in stages.items()
    ]
    stage_or_stages = made if schedule.chunks > 1 else made[0]
    runner = LIBRARY[schedule.name](stage_or_stages, schedule.microbatches, loss_fn=loss_of)

    def run(microbatches: Sequence[MicroBatch], watch: Watch) -> Tensor | None:
        for stage in made:
            stage.watch = watch
        tokens, labels = (torch.cat(each) for each in zip(*microbatches, strict=True))
        losses: list[Tensor] = []
        first, last = any(stage.is_first for stage in made), any(stage.is_last for stage in made)
        targets: dict[str, Any] = {"target": labels, "losses": losses} if last else {}
        # Outputs that are returned would keep every micro-batch's logits to the end of the step.
        runner.step(*[tokens][:first], **targets, return_outputs=False)
        return torch.stack(losses).mean().detach() if losses else None

    return Part(module=stages, run=run, name_of=without_stage, by_action=True)


def keywords(scenario: Scenario, own: Mapping[str, Any], by_hand: bool) -> dict[str, Any]:
    """Levers of both for a scenario."""
    return {"schedule": schedule_of(scenario, own)}


def one_token_late(loss_of: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Read the labels one token too late."""
    return lambda logits, labels: loss_of(logits, labels.roll(-1, 1))


WRONG_OFFSET = ("loss_of", one_token_late)
"""What says where a rank's share lies, and what makes it wrong: a planted fault."""
