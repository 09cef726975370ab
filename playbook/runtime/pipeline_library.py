"""torch.distributed.pipelining with its actions, messages and waits on the watch.

What it computes is seen by a subclass of its stage, which is public; what it waits for only inside the one
function through which all its schedules wait.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage

from playbook.runtime.part import LOOK_AWAY, Watch
from playbook.schedules import Action

Told = tuple[str, str, Any]
"""Way (send or receive), id of the action, and the message."""


@dataclass(kw_only=True)
class Mail:
    """Knows whose the messages are that a rank has posted, until it waits for them."""

    watch: Watch = LOOK_AWAY
    _told: dict[int, tuple[dist.P2POp, Told]] = field(default_factory=dict)
    _under_way: dict[int, tuple[Any, list[Told]]] = field(default_factory=dict)

    def tell(self, way: str, action: str, messages: Sequence[dist.P2POp]) -> None:
        """Note whose messages are about to be posted."""
        for message in messages:
            self._told[id(message)] = message, (way, action, message.tensor)
            with self.watch.during(way, action, message.tensor):
                pass

    def posted(self, messages: Sequence[dist.P2POp], works: Sequence[Any]) -> None:
        """Note which work carries which messages: each its own, or the first all of them."""
        told = [self._told.pop(id(message))[1] for message in messages if id(message) in self._told]
        each = [[one] for one in told] if len(works) == len(told) else [told, *[[] for _ in works[1:]]]
        for work, ours in zip(works, each, strict=False):
            self._under_way[id(work)] = work, ours

    @contextmanager
    def waiting(self, works: Sequence[Any]) -> Iterator[None]:
        """Enclose a wait: for the messages that arrive, or for those that leave if none arrives."""
        told = [one for work in works for one in self._under_way.pop(id(work), (None, []))[1]]
        arriving = [one for one in told if one[0] == "receive"]
        kind = "wait" if arriving else "drain"
        with ExitStack() as stack:
            for _, action, message in arriving or told:
                stack.enter_context(self.watch.during(kind, action, message))
            yield


class WatchedStage(PipelineStage):
    """The library's stage, which tells when an action computes and what it sends."""

    mail: Mail

    def forward_one_chunk(self, fwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
        """Run a micro-batch's forward; the last stage's loss comes after it."""
        with self.mail.watch.during("forward", self._id("F", fwd_chunk_id)):
            return super().forward_one_chunk(fwd_chunk_id, *args, **kwargs)

    def backward_one_chunk(
        self,
        bwd_chunk_id: int,
        loss: Any = None,
        full_backward: bool = True,
        last_backward: bool = False,
    ) -> Any:
        """Run a micro-batch's backward, or its part for the input."""
        kind, word = ("B", "backward") if full_backward else ("I", "backward_input")
        with self.mail.watch.during(word, self._id(kind, bwd_chunk_id)):
            return super().backward_one_chunk(
                bwd_chunk_id, loss=loss, full_backward=full_backward, last_backward=last_backward
            )

    def backward_weight_one_chunk(self, bwd_chunk_id: int, last_backward: bool = False) -> Any:
        """Run the part of a backward for the weights; on the first stage that is all of it."""
        with self.mail.watch.during("backward_weight", self._id("W", bwd_chunk_id)):
            return super().backward_weight_one_chunk(bwd_chunk_id, last_backward=last_backward)

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

    def _id(self, kind: str, microbatch: int) -> str:
        return Action(self.stage_index, kind, microbatch).id

    def _told(self, way: str, kind: str, microbatch: int, messages: list[dist.P2POp]) -> list[dist.P2POp]:
        self.mail.tell(way, self._id(kind, microbatch), messages)
        return messages
