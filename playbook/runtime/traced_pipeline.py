"""A pipeline rank on fake tensors: the library's own schedule over a fake group, its messages made up.

`torch.distributed.pipelining` asks its neighbours what they will send, as pickled objects that no fake group
delivers. Here every stage is told beforehand, which the library allows, and its vote on who was told is won.
Messages have their true size and lifetime: the library keeps a room for each of a step's micro-batches and
directions for good, and what it sends until it has left.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from playbook.program.ids import Id, parse
from playbook.program.schedule import Schedule
from playbook.runtime.action_owners import ActionOwners
from playbook.runtime.owners import Place
from playbook.runtime.pipeline_executor import COMPUTE
from playbook.runtime.pipeline_library import WatchedStage
from playbook.runtime.torch_private import current_node
from playbook.runtime.trace_memory import Ledger
from playbook.spec import Scenario


class ToldStages:
    """Makes stages that know their neighbours' messages, and remembers them.

    Parameters
    ----------
    scenario
        Says how large a message is.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.made: list[ToldStage] = []

    def __call__(
        self, module: Any, index: int, stages: int, device: torch.device, **more: Any
    ) -> "ToldStage":
        """Make one stage, as the library's class would."""
        work, model = self.scenario.workload, self.scenario.model
        dtype = torch.bfloat16 if self.scenario.recipe.compute_bytes == 2 else torch.get_default_dtype()
        tokens = torch.zeros(work.micro_batch, work.sequence, dtype=torch.int64)
        layout = self.scenario.layout
        own = work.sequence // (layout.tp if layout.sequence_parallel else 1)
        hidden = torch.zeros(work.micro_batch, own, model.hidden, dtype=dtype, requires_grad=True)
        logits = torch.zeros(*tokens.shape, model.vocabulary, dtype=dtype, requires_grad=True)
        ends = {
            "input_args": tokens if index == 0 else hidden,
            "output_args": logits if index == stages - 1 else hidden,
        }
        self.made.append(ToldStage(module, index, stages, device, **ends, **more))
        return self.made[-1]

    def rooms(self) -> Iterator[Tensor]:
        """Yield the rooms that the stages keep for the messages of a step."""
        for stage in self.made:
            for infos in (*stage.args_recv_info.values(), *stage.grad_recv_info.values()):
                yield from filter(torch.is_tensor, (getattr(info, "buffer", None) for info in infos))


class ToldStage(WatchedStage):
    """The library's stage with nothing left to ask of its neighbours."""

    def _warmup_forward_vote(self, *_arguments: Any, **_more: Any) -> Tensor:
        return torch.ones(1, dtype=torch.int32)

    def _warmup_backward_result(self, *_arguments: Any, **_more: Any) -> Tensor:
        return torch.ones(1, dtype=torch.int32)


class PipelineOwners(ActionOwners):
    """Says where the operations of a traced pipeline rank belong, the library's own and messages included.

    Parameters
    ----------
    stages, ledger
        As for `ActionOwners`.
    schedule
        Says which backwards run in two parts: their messages belong to the first.
    """

    def __init__(self, stages: nn.Module, ledger: Ledger, schedule: Schedule) -> None:
        super().__init__(stages, ledger)
        self._apart = {(a.stage, a.microbatch) for order in schedule.orders for a in order if a.kind == "I"}
        self._letters: dict[int, Id] = {}
        self._last: Id | None = None

    @contextmanager
    def during(self, kind: str, action: str, message: Tensor | None = None) -> Iterator[None]:
        """Note which action runs, and whose a message is."""
        if message is not None and kind in ("send", "receive"):
            made = self._letters[message.untyped_storage()._cdata] = self._named(parse(action))
            if kind == "send" and made.phase != "F":
                self.ledger.mark(message, "communication_buffers")
        with super().during(kind, action, message):
            yield
        if kind in COMPUTE:
            self._last = parse(action)

    @property
    def stage(self) -> str:
        """Name of the stage that runs, or ran last."""
        running = self._action or self._last
        return "" if running is None else running.owner

    def message(self, args: tuple) -> Place | None:
        """Return where a message belongs: to the action that needs or made it."""
        made = self._letters.get(args[0][0].untyped_storage()._cdata)
        return made and Place(microbatch=made.microbatch, phase=made.phase, owner=made.owner)

    def place(self) -> Place | None:
        """Return where the operation of this moment belongs, or None before the first action.

        What the library does between actions is the loss behind a forward, or the scaling of gradients
        behind a backward, which no program names.
        """
        running = self._action or self._last
        if running is not None and any(text.startswith("FSDP::") for text in self._labels):
            return replace(self._labelled(current_node()), microbatch=running.microbatch)
        found, last = super().place(), self._last
        if self._action is not None or self._over:
            return found
        if last is None:
            return None
        if last.phase == "F":
            return Place(microbatch=last.microbatch, phase="F", owner="", outside=True)
        return Place(microbatch=last.microbatch, phase="B", owner="", aside=True, outside=True)

    def _named(self, made: Id) -> Id:
        stage = int(made.owner.removeprefix("stage"))
        return (
            replace(made, phase="I")
            if made.phase == "B" and (stage, made.microbatch) in self._apart
            else made
        )
