"""What a pipeline on real ranks needs beside its order: the way of each message, and the clock.

The loop over the actions is the strategy's own: `playbook.strategies.pp.ranks.by_hand`.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from playbook.program.ids import parse
from playbook.program.schedule import Schedule
from playbook.runtime.part import MicroBatch, Place, Watch
from playbook.schedules import Action

UNITS = {"forward": 1.0, "backward": 2.0}
"""Cost of a chunk's forward and backward, in units: a backward has two products for each of forward's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The way of one message, from the rank that sends or to the rank that receives.

    Parameters
    ----------
    peer
        The other rank in the group; this rank itself if both stages are here, or None at an end of the
        pipeline.
    group
        Process group that carries it.
    tag
        Tells it from every other message of the step.
    """

    peer: int | None
    group: dist.ProcessGroup
    tag: int


class Wire:
    """How the messages of a schedule travel: between which ranks, over which group, through whose memory.

    Parameters
    ----------
    pp
        The pipeline's ranks.
    schedule
        Says which rank owns which stage.
    """

    def __init__(self, pp: Place, schedule: Schedule) -> None:
        self.pp, self.owner = pp, schedule.placement
        # Gloo dies on a CUDA tensor sent point to point, so messages pass through the host there.
        self.memory = pp.device if pp.over_nccl else torch.device("cpu")
        self._one_way = one_way_groups(pp, self.owner) if pp.over_nccl else {}

    def source(self, action: Action) -> Route:
        """Return the way of an action's input: forward from the stage before, backward from the one after."""
        made_by = action._replace(stage=action.stage - step(action))
        return self._route(made_by, made_by.stage, action.stage, made_by.stage)

    def target(self, action: Action) -> Route:
        """Return the way of what an action makes: forward to the stage after, backward to the one before."""
        to = action.stage + step(action)
        return self._route(action, action.stage, to, to)

    def message(self, microbatch: MicroBatch, stages: nn.Module) -> Tensor:
        """Make room for one message: the hidden states of a micro-batch, or their gradient."""
        stage: Any = next(stages.children())
        dtype = next(stage.parameters()).dtype
        return torch.empty(*microbatch[0].shape, stage.spec.hidden, dtype=dtype, device=self.memory)

    def _route(self, made_by: Action, start: int, end: int, other: int) -> Route:
        stages = len(self.owner)
        tag = (made_by.microbatch * (stages + 2) + made_by.stage + 1) * 2 + (made_by.kind == "B")
        if not 0 <= other < stages:
            return Route(peer=None, group=self.pp.group, tag=tag)
        way = made_by.kind, self.owner[start], self.owner[end]
        return Route(peer=self.owner[other], group=self._one_way.get(way, self.pp.group), tag=tag)


def step(action: Action) -> int:
    """Stages that an action's result goes on: one further in forward, one back in backward."""
    return 1 if action.kind == "F" else -1


def one_way_groups(pp: Place, owner: tuple[int, ...]) -> dict[tuple[str, int, int], Any]:
    """Make a group for every direction between two ranks.

    NCCL runs the messages of one group in the order in which a rank posts them. Two ranks that each send
    first would wait for each other, so forward and backward, and the two ways of a pair, get groups of their
    own.
    """
    members = dist.get_process_group_ranks(pp.group)
    steps = [(a, b) for a, b in zip(owner, owner[1:], strict=False) if a != b]
    ways = {("F", a, b) for a, b in steps} | {("B", b, a) for a, b in steps}
    return {way: dist.new_group([members[way[1]], members[way[2]]]) for way in sorted(ways)}


class Timeline(Watch):
    """Notes when each action, wait and send begins and ends, on the clock that all ranks of a machine share.

    Parameters
    ----------
    unit_s
        Seconds of one unit: every action is stretched by sleep to its cost in units. 0 leaves the real times.
    units
        Cost of a forward and of a backward, by kind.
    device
        CUDA work is waited for at the end of every action, so that the times are those of the work.
    zero_s
        Moment of the monotonic clock that is 0 in the rows.
    report
        Gets every row as it ends.
    """

    def __init__(
        self,
        *,
        device: torch.device,
        unit_s: float = 0.0,
        units: Mapping[str, float] = UNITS,
        zero_s: float = 0.0,
        report: Callable[[dict[str, Any]], None] = lambda row: None,
    ) -> None:
        self.device, self.unit_s, self.units, self.zero_s, self.report = device, unit_s, units, zero_s, report
        self.rows: list[dict[str, Any]] = []

    @contextmanager
    def during(self, kind: str, action: str, message: Tensor | None = None) -> Iterator[None]:
        """Time one action, wait or send; stretch it to its cost."""
        start_s = time.monotonic()
        yield
        if kind == "receive":
            return
        if self.device.type == "cuda" and kind in UNITS:
            torch.cuda.synchronize(self.device)
        if kind in UNITS:
            time.sleep(max(0.0, start_s + self.units[kind] * self.unit_s - time.monotonic()))
        self._note(kind, action, start_s, time.monotonic() - start_s, message)

    def _note(
        self, kind: str, action: str, start_s: float, duration_s: float, message: Tensor | None
    ) -> None:
        made = parse(action)
        row = {
            "op": f"{action}/send@pp#0" if kind == "send" else action,
            "lane": "compute" if kind in UNITS else "communication",
            "kind": kind,
            "label": f"{made.owner.removeprefix('stage')}{made.phase}{made.microbatch}",
            "microbatch": made.microbatch,
            "start_s": start_s - self.zero_s,
            "duration_s": duration_s,
            "low_s": duration_s,
            "high_s": duration_s,
            "bytes": message.nbytes if message is not None else 0,
        }
        self.rows.append(row)
        self.report(row)
