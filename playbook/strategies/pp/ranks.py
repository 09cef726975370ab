"""Pipeline parallelism on real ranks: every rank holds some stages, micro-batches pass through them.

Communicates over pp, per boundary between ranks and micro-batch: the hidden states in forward, their gradient
in backward, each of B · S · D elements; with two chains once a step the gradients of the stages held twice.
"""

# pyright: reportOptionalMemberAccess=false
# (torch declares the work of a receive as optional)

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import (
    Schedule1F1B,
    ScheduleDualPipeV,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleLoopedBFS,
    ScheduleZBVZeroBubble,
)

from playbook.models.put_off import put_off
from playbook.models.transformer import Transformer, loss_of
from playbook.program.schedule import Schedule
from playbook.runtime.owners import owner_name
from playbook.runtime.part import MicroBatch, Part, Place, Watch
from playbook.runtime.pipeline_executor import WORDS, Wire
from playbook.runtime.pipeline_levers import schedule_of
from playbook.runtime.pipeline_library import Mail, WatchedStage
from playbook.runtime.torch_private import part, watched_messages
from playbook.schedules import Action
from playbook.spec import Model, Scenario

LIBRARY: dict[str, Any] = {
    "gpipe": ScheduleGPipe,
    "1f1b": Schedule1F1B,
    "interleaved-1f1b": ScheduleInterleaved1F1B,
    "looped-bfs": ScheduleLoopedBFS,
    "zb-h1": ScheduleInterleavedZeroBubble,
    "interleaved-zero-bubble": ScheduleInterleavedZeroBubble,
    "zbv": ScheduleZBVZeroBubble,
    "dualpipe-v": ScheduleDualPipeV,
}
"""Our names of the schedules that the library runs too."""

ONE_STAGE = ("gpipe", "1f1b")
"""Those of them that take a stage and not a list."""


def by_hand(stages: nn.ModuleDict, pp: Place, *, schedule: Schedule) -> Part:
    """Run this rank's actions in the schedule's order: receive, compute, send on."""
    wire, later = Wire(pp, schedule, stages), put_off(stages, wanted=schedule.splits_backward)

    def run(microbatches: Sequence[MicroBatch], watch: Watch) -> Tensor | None:
        alive, products, letters, sending, losses = {}, {}, {}, [], []

        def compute(action: Action, arrived: Tensor | None) -> Tensor | None:
            key = action.stage, action.microbatch
            with watch.during(WORDS[action.kind], action.id):
                if action.kind == "F":
                    tokens, labels = microbatches[action.microbatch]
                    x = tokens if arrived is None else arrived.requires_grad_()
                    y = stages[str(action.stage)](x)
                    if wire.is_last(action.stage):
                        losses.append(y := loss_of(y, labels) / len(microbatches))
                    alive[key] = x, y
                    return y.detach()
                if action.kind == "W":
                    return products.pop(key).compute()
                x, y = alive.pop(key)
                with later.putting_off(action.kind == "I") as products[key]:  # B leaves none
                    y.backward(arrived)
                return x.grad

        for step in wire.steps:  # one action, or two that run at the same time
            for way in step.expected:
                with watch.during("receive", way.action.id, room := wire.room(microbatches)):
                    letters[way.tag] = room, dist.irecv(room, **way.address)
            arrived = [wire.open(letters, way, watch) for way in step.sources]
            made = [compute(*each) for each in zip(step.actions, arrived, strict=True)]
            for way, tensor in zip(step.targets, made, strict=True):
                if way.travels:
                    with watch.during("send", way.action.id, message := tensor.to(wire.memory)):
                        sending.append(dist.isend(message, **way.address))
                elif way.local:
                    letters[way.tag] = tensor, None
        for work in sending:
            work.wait()
        for gradients in wire.copies(watch):  # of stages that two ranks hold
            dist.all_reduce(gradients, group=wire.partners)
        return torch.stack(losses).sum().detach() if losses else None

    return Part(module=stages, run=run, close=wire.close, name_of=without_stage, by_action=True)


BY_HAND = (by_hand,)
"""What a chapter shows."""


def hold(spec: Model, pp: Place, *, schedule: Schedule, stage_layers: Sequence[int]) -> nn.ModuleDict:
    """Make this rank's stages, keyed by their number; layers keep their numbers in the whole model."""
    firsts = [sum(stage_layers[:stage]) for stage in range(len(stage_layers))]
    own = [stage for stage, owner in enumerate(schedule.placement) if owner == pp.rank]
    layers = {
        stage: range(firsts[depth], firsts[depth] + stage_layers[depth])
        for stage, depth in ((stage, schedule.model_stage(stage)) for stage in own)
    }
    return nn.ModuleDict({str(stage): Transformer(spec, layers[stage]) for stage in own})


def without_stage(name: str) -> str:
    """Drop the stage's number from a parameter's name, and what a checkpoint adds.

    Examples
    --------
    >>> without_stage("3.layers.7._checkpoint_wrapped_module.mlp.up_proj.weight")
    'layers.7.mlp.up_proj.weight'
    """
    return owner_name(name.partition(".")[2])


def by_library(
    stages: nn.ModuleDict,
    pp: Place,
    *,
    schedule: Schedule,
    stage_of: Callable[..., WatchedStage] = WatchedStage,
) -> Part:
    """Do the same by torch.distributed.pipelining; its own order stands for the schedule's name.

    Raises
    ------
    ValueError
        If ranks share a GPU: the library sends CUDA tensors from rank to rank, and gloo dies of that.
    """
    if pp.device.type == "cuda" and not pp.over_nccl:
        raise ValueError("torch.distributed.pipelining sends CUDA tensors, which gloo cannot; use by='hand'")
    made = [
        stage_of(module, int(stage), len(schedule.placement), pp.device, group=pp.group)
        for stage, module in stages.items()
    ]
    mail = Mail()
    for stage in made:
        stage.mail = mail
    runner = runner_of(schedule, made)

    def run(microbatches: Sequence[MicroBatch], watch: Watch) -> Tensor | None:
        mail.watch = watch
        tokens, labels = (torch.cat(each) for each in zip(*microbatches, strict=True))
        losses: list[Tensor] = []
        first, last = any(stage.is_first for stage in made), any(stage.is_last for stage in made)
        targets: dict[str, Any] = {"target": labels, "losses": losses} if last else {}
        with watched_messages(mail.posted, mail.waiting):
            # Outputs that are returned would keep every micro-batch's logits to the end of the step.
            runner.step(*[tokens][:first], **targets, return_outputs=False)
        return torch.stack([loss.detach() for loss in losses]).mean() if losses else None

    return Part(module=stages, run=run, name_of=without_stage, by_action=True)


def runner_of(schedule: Schedule, stages: Sequence[WatchedStage]) -> Any:
    """Make the library's runner of a schedule: its class of that name, or its runtime with an order of one's
    own.
    """
    if schedule.name not in LIBRARY:
        runner = part("PipelineRuntime")(list(stages), schedule.microbatches, loss_fn=loss_of)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "order.csv"
            schedule.to_csv(file)
            runner._load_csv(str(file))
        return runner
    given = stages[0] if schedule.name in ONE_STAGE else list(stages)
    return LIBRARY[schedule.name](given, schedule.microbatches, loss_fn=loss_of)


def keywords(scenario: Scenario, own: Mapping[str, Any], by_hand: bool) -> dict[str, Any]:
    """Levers of both for a scenario."""
    return {"schedule": schedule_of(scenario, own)}


def one_token_late(loss_of: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Read the labels one token too late."""
    return lambda logits, labels: loss_of(logits, labels.roll(-1, 1))


WRONG_OFFSET = ("loss_of", one_token_late)
"""What says where a rank's share lies, and what makes it wrong: a planted fault."""
