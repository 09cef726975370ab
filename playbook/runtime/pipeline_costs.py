"""What a stage costs alone: its forward and backward without messages, and the way of one message between
GPUs. A simulation of the schedule with these numbers is the prediction that a run is compared with.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from playbook.models.put_off import put_off
from playbook.models.transformer import loss_of
from playbook.program.schedule import Schedule
from playbook.runtime.part import MicroBatch, Place
from playbook.runtime.pipeline_executor import WORDS, one_way_groups
from playbook.runtime.pipeline_routes import Channel

WARM, TIMES = 2, 7
"""Runs of a stage that do not count, and that do."""

IN_A_ROW = 4
"""Micro-batches whose W are timed one after the other, as a schedule runs them at its end: a GPU that does
nothing but matrix products lowers its clock."""

ROUNDS = 30
"""Messages there and back of which one's time is taken."""


def stage_costs(
    stages: nn.ModuleDict,
    schedule: Schedule,
    place: Place,
    microbatch: MicroBatch,
) -> dict[str, list[float]]:
    """Seconds of a forward, backward, backward_input and backward_weight of every stage, timed alone.

    Every rank times its own; all get all of them. Where a schedule does not split backward, the two parts are
    each half of it.
    """
    return of_all_ranks(own_costs(stages, schedule, microbatch), place)


def beside_costs(
    stages: nn.ModuleDict,
    schedule: Schedule,
    place: Place,
    microbatch: MicroBatch,
    room: Tensor,
) -> dict[str, list[float]]:
    """The same beside a message that every rank has sent and nobody receives until all are done.

    Parameters
    ----------
    room
        The message, as large as those of a step.
    """
    groups = one_way_groups(place, schedule)
    ways = {sender: (forward, sender, receiver) for forward, sender, receiver in sorted(groups, reverse=True)}
    dist.barrier(group=place.group)
    sending: Any = dist.isend(
        room, group=groups[ways[place.rank]], group_dst=peer_in(groups, ways[place.rank])
    )
    costs = own_costs(stages, schedule, microbatch)
    dist.barrier(group=place.group)
    for way in ways.values():
        if way[2] == place.rank:
            receiving: Any = dist.irecv(
                torch.empty_like(room), group=groups[way], group_src=peer_in(groups, way)
            )
            receiving.wait()
    sending.wait()
    found = of_all_ranks(costs, place)
    settle(place.device)
    for group in groups.values():
        dist.destroy_process_group(group)
    return found


def peer_in(groups: dict[Channel, Any], way: Channel) -> int:
    """Number of the other rank in a group of two."""
    return groups[way].rank() ^ 1


def own_costs(stages: nn.ModuleDict, schedule: Schedule, microbatch: MicroBatch) -> Tensor:
    """Costs of this rank's stages, 0 for others. Shape (kinds, stages)."""
    split = schedule.splits_backward
    table = torch.zeros(len(WORDS), len(schedule.placement), dtype=torch.float64)
    for name, stage in stages.items():
        last = int(name) in schedule.last_stages
        costs = time_stage(stages, stage, microbatch, last, split)
        table[:, int(name)] = torch.tensor(costs, dtype=torch.float64)
    return table


def of_all_ranks(table: Tensor, place: Place) -> dict[str, list[float]]:
    """Every rank's costs, by kind and stage."""
    table = table.to(place.device)
    dist.all_reduce(table, group=place.group)
    return dict(zip(WORDS.values(), table.tolist(), strict=True))


def time_stage(
    stages: nn.ModuleDict,
    stage: nn.Module,
    microbatch: MicroBatch,
    last: bool,
    split: bool,
) -> tuple[float, float, float, float]:
    """Median seconds of F, B, I and W of one stage on made-up inputs."""
    later, device = put_off(stages, wanted=split), microbatch[0].device
    inputs, gradient = inputs_of(stage, microbatch, last)

    def forward() -> Tensor:
        inputs.grad = None
        y = stage(inputs)
        return loss_of(y, microbatch[1]) if last else y

    def whole() -> list[Moment]:
        marks = [mark(device)]
        y = forward()
        marks.append(mark(device))
        y.backward(gradient)
        return [*marks, mark(device)]

    def parts() -> list[Moment]:
        marks, waiting = [mark(device)], []
        for _ in range(IN_A_ROW):
            y = forward()
            marks.append(mark(device))
            with later.putting_off() as products:
                y.backward(gradient)
            marks.append(mark(device))
            waiting.append(products)
        for products in waiting:
            products.compute()
            marks.append(mark(device))
        return marks

    forward_s, backward_s = medians(whole)
    if split:
        spans = medians(parts)
        input_s = statistics.mean(spans[1 : 2 * IN_A_ROW : 2])
        weight_s = statistics.mean(spans[2 * IN_A_ROW :])
    else:
        input_s = weight_s = backward_s / 2
    for parameter in stage.parameters():
        parameter.grad = None
    return forward_s, backward_s, input_s, weight_s


def inputs_of(stage: Any, microbatch: MicroBatch, last: bool) -> tuple[Tensor, Tensor | None]:
    """Tokens for a stage that embeds, hidden states for another, and the gradient that comes back to it.

    Random and not zeros: the speed of a matrix product depends on its data.
    """
    tokens, weight = microbatch[0], next(stage.parameters())
    shape, like = (*tokens.shape, stage.spec.hidden), {"dtype": weight.dtype, "device": weight.device}
    inputs = tokens if stage.embed_tokens is not None else torch.randn(shape, **like, requires_grad=True)
    return inputs, None if last else torch.randn(shape, **like)


class Now:
    """A moment of the processor's clock, read as an event of a GPU is."""

    def __init__(self) -> None:
        self.moment_s = time.monotonic()

    def synchronize(self) -> None:
        """Wait for it: it has been."""

    def elapsed_time(self, later: "Now") -> float:
        """Milliseconds to a later moment."""
        return (later.moment_s - self.moment_s) * 1e3


Moment = Any
"""An event of a GPU, or `Now`."""


def mark(device: torch.device) -> Moment:
    """Note a moment: on a GPU when what is queued so far is done."""
    if device.type != "cuda":
        return Now()
    event = torch.cuda.Event(enable_timing=True)
    event.record(torch.cuda.current_stream(device))
    return event


def settle(device: torch.device) -> None:
    """Wait until a GPU is done with what is queued."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def medians(run: Callable[[], Sequence[Moment]]) -> list[float]:
    """Median seconds between neighbouring moments of several runs, all queued before they are read."""
    marks = [run() for _ in range(WARM + TIMES)][WARM:]
    marks[-1][-1].synchronize()  # not the device: a message may wait there until this is done
    spans = [[a.elapsed_time(b) / 1e3 for a, b in zip(one, one[1:], strict=False)] for one in marks]
    return [statistics.median(column) for column in zip(*spans, strict=True)]


def message_s(place: Place, room: Tensor, there: Any, back: Any) -> float:
    """Seconds of one message from rank to rank: half of there and back, the mean of many.

    Parameters
    ----------
    place
        The ranks; 0 and 1 measure, all get the result.
    room
        The message.
    there, back
        Groups of two, or of all ranks, that carry it to rank 1 and back.
    """
    found = torch.zeros(1, dtype=torch.float64, device=place.device)
    if place.rank < 2:
        calls = (dist.irecv, dist.isend) if place.rank else (dist.isend, dist.irecv)
        begin = mark(place.device)
        for turn in range(WARM + ROUNDS):
            if turn == WARM:
                begin = mark(place.device)
            for call, group in zip(calls, (there, back), strict=True):
                work: Any = call(room, None, group, 0, 1 - place.rank)
                work.wait()
        end = mark(place.device)
        settle(place.device)
        if place.rank == 0:
            found += begin.elapsed_time(end) / 1e3 / (2 * ROUNDS)
    dist.all_reduce(found, group=place.group)
    return found.item()
