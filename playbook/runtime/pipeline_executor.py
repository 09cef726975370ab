"""What a pipeline on real ranks needs beside its order: the way of each message, and when to expect it.

The loop over the actions is the strategy's own: `playbook.strategies.pp.ranks.by_hand`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from playbook.program.schedule import Schedule
from playbook.runtime.part import MicroBatch, Place, Watch
from playbook.runtime.pipeline_routes import Channel, Route, blocks_of, expected_by, route_in, route_out
from playbook.schedules import Action

WORDS = {"F": "forward", "B": "backward", "I": "backward_input", "W": "backward_weight"}
"""What a timeline calls an action, by its kind."""

COMPUTE = tuple(WORDS.values())

Letters = dict[int, tuple[Tensor, Any]]
"""By tag: a message's room with the work that fills it, or a tensor that a neighbour on this rank made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What a rank does next: one action, or two at the same time.

    Parameters
    ----------
    actions
        They run together: what each needs is received before, what each makes is sent after.
    expected
        Messages to post a receive for before, in the order in which they are sent.
    sources, targets
        The way of what each action needs and makes.
    """

    actions: tuple[Action, ...]
    expected: tuple[Route, ...]
    sources: tuple[Route, ...]
    targets: tuple[Route, ...]


class Wire:
    """How the messages of a schedule travel: between which ranks, over which group, through whose memory.

    Parameters
    ----------
    pp
        The pipeline's ranks.
    schedule
        Says which rank owns which stage, and who needs what when.
    stages
        What this rank holds, by number; says how large a message is.
    """

    def __init__(self, pp: Place, schedule: Schedule, stages: nn.ModuleDict) -> None:
        self.pp, self.schedule, self.stages = pp, schedule, stages
        # Gloo dies on a CUDA tensor sent point to point, so messages pass through the host there.
        self.memory = pp.device if pp.over_nccl else torch.device("cpu")
        self._one_way = one_way_groups(pp, schedule) if pp.over_nccl else {}
        self.partners = partner_group(pp, schedule)
        self.steps = self._plan_steps()

    def room(self, microbatches: Sequence[MicroBatch]) -> Tensor:
        """Make room for one message: the hidden states of a micro-batch, or their gradient."""
        stage: Any = next(iter(self.stages.values()))
        dtype = next(stage.parameters()).dtype
        return torch.empty(*microbatches[0][0].shape, stage.spec.hidden, dtype=dtype, device=self.memory)

    def open(self, letters: Letters, route: Route, watch: Watch) -> Tensor | None:
        """Wait for a message and take it; None where an action needs none."""
        tensor, work = letters.pop(route.tag, (None, None))
        if tensor is not None and work is not None:
            with watch.during("wait", route.action.id, tensor):
                work.wait()
        return tensor if tensor is None else tensor.to(self.pp.device)

    def is_last(self, stage: int) -> bool:
        """Tell whether the loss is behind a stage."""
        return stage in self.schedule.last_stages

    def copies(self, watch: Watch) -> Iterator[Tensor]:
        """Yield each stage's gradients, in one tensor, for a sum with those of the partner rank's copy.

        Both ranks take the stages in the same order; the sum goes back to where the gradients are. A rank
        that holds both copies adds them itself.
        """
        if self.partners is None:
            return
        held = sorted(self.stages, key=lambda stage: self.schedule.model_stage(int(stage)))
        flats = [torch.cat([gradient.flatten() for gradient in self._gradients(stage)]) for stage in held]
        if self.partners.size() == 1:
            flats = [torch.stack(flats).sum(0)] * len(held)
        for stage, flat in zip(held, flats, strict=True):
            if self.partners.size() > 1:
                with watch.during("collective", f"m-1/O/stage{stage}", flat):
                    yield flat
            gradients = self._gradients(stage)
            for gradient, total in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
                gradient.copy_(total.view_as(gradient))

    def _gradients(self, stage: str) -> list[Tensor]:
        return [p.grad for p in self.stages[stage].parameters() if p.grad is not None]

    def close(self) -> None:
        """Leave the groups that were made for this wire, when no rank has messages under way any more."""
        if self._one_way:
            torch.cuda.synchronize(self.pp.device)
            dist.barrier(group=self.pp.group)
        for group in (*self._one_way.values(), self.partners):
            if group is not None:
                dist.destroy_process_group(group)

    def _plan_steps(self) -> tuple[Step, ...]:
        """This rank's actions with the ways of their messages."""
        rank, blocks = self.pp.rank, blocks_of(self.schedule.orders[self.pp.rank])
        expected = expected_by(self.schedule, rank, blocks)
        return tuple(
            Step(
                actions=actions,
                expected=tuple(self._over_group(route_in(self.schedule, action)) for action in posts),
                sources=tuple(self._over_group(route_in(self.schedule, action)) for action in actions),
                targets=tuple(self._over_group(route_out(self.schedule, action)) for action in actions),
            )
            for actions, posts in zip(blocks, expected, strict=True)
        )

    def _over_group(self, route: Route) -> Route:
        return route.over(self._one_way.get(route.channel, self.pp.group))


def one_way_groups(pp: Place, schedule: Schedule) -> dict[Channel, Any]:
    """Make a group for every direction between two ranks, and let each carry a first message.

    NCCL runs the messages of one group in the order in which a rank posts them. Two ranks that each send
    first would wait for each other, so forward and backward, and the two ways of a pair, get groups of their
    own. A group connects with its first message, which both ranks wait for: so all connect here, in one
    order, and not in the middle of a step, where two ranks could wait for each other.
    """
    members, order = dist.get_process_group_ranks(pp.group), schedule.placement
    steps = [
        (order[s], order[s + 1])
        for s in range(len(order) - 1)
        if order[s] != order[s + 1] and s not in schedule.last_stages
    ]
    ways = sorted({(True, a, b) for a, b in steps} | {(False, b, a) for a, b in steps})
    groups: dict[Channel, Any] = {
        (forward, a, b): dist.new_group([members[a], members[b]]) for forward, a, b in ways
    }
    for (_, sender, receiver), group in groups.items():
        word = torch.zeros(1, device=pp.device)
        if pp.rank == sender:
            dist.isend(word, group=group, group_dst=group.rank() ^ 1).wait()  # pyright: ignore[reportOptionalMemberAccess]
        elif pp.rank == receiver:
            dist.irecv(word, group=group, group_src=group.rank() ^ 1).wait()  # pyright: ignore[reportOptionalMemberAccess]
    return groups


def partner_group(pp: Place, schedule: Schedule) -> Any | None:
    """Make the group of this rank and the one that holds copies of its stages; None where nothing is copied.

    With two chains rank r and rank p − 1 − r hold the same two stages of the model. In the middle of an odd
    number of ranks both copies are on one rank, alone in its group.
    """
    if schedule.chains == 1:
        return None
    members = dist.get_process_group_ranks(pp.group)
    pairs = [sorted({rank, pp.ranks - 1 - rank}) for rank in range((pp.ranks + 1) // 2)]
    groups = [dist.new_group([members[rank] for rank in pair]) for pair in pairs]
    return groups[min(pp.rank, pp.ranks - 1 - pp.rank)]
