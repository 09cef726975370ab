"""An emulated pipeline: real processes and real messages of the model's own size, sleeps in place of compute.

Four ranks on two cores compute one after the other; asleep they run side by side, so a laptop shows the
schedule and not the system's. The same code runs as in earnest, on stages that do next to nothing.
"""

import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from playbook.models.transformer import RMSNorm
from playbook.program.schedule import Schedule
from playbook.program.simulation import Simulation
from playbook.runtime.part import MicroBatch
from playbook.runtime.pipeline_executor import COMPUTE
from playbook.runtime.pipeline_routes import blocks_of
from playbook.runtime.pipeline_timeline import MESSAGES, Report, Timeline, no_report, size_of
from playbook.spec import Model

HANDLING_S = 0.001
"""What handing a message over may cost without counting: on a GPU that happens beside compute. What lasts
longer shows as a later start."""

LONGEST_WATCH_S = 0.0005
"""Longest that a rank watches the clock for the end of a sleep, however long the machine oversleeps."""

STAMP_BYTES = 8


class StandIn(nn.Module):
    """A stage without layers: hidden states in and out, at once."""

    def __init__(self, spec: Model, last: bool) -> None:
        super().__init__()
        self.spec, self.last = spec, last
        self.norm = RMSNorm(spec.hidden, 1.0)

    def forward(self, x: Tensor) -> Tensor:
        """Tokens (B, S) or hidden states (B, S, D) in; hidden states or one word's logits (B, S, 1) out."""
        if not x.is_floating_point():
            x = torch.zeros(*x.shape, self.spec.hidden, dtype=self.norm.weight.dtype, device=x.device)
        x_BSD = self.norm(x)
        return x_BSD[..., :1] if self.last else x_BSD


def stand_ins(stages: nn.ModuleDict, schedule: Schedule) -> nn.ModuleDict:
    """Make a stand-in for every stage of a rank, whose messages are as large as the stage's."""
    made = {}
    for name, stage in stages.items():
        weight: Any = next(stage.parameters())
        last = int(name) in schedule.last_stages
        made[name] = StandIn(stage.spec, last).to(weight.device, weight.dtype)  # type: ignore[arg-type]
    return nn.ModuleDict(made)


def blank(microbatches: Sequence[MicroBatch]) -> list[MicroBatch]:
    """Micro-batches whose labels a stand-in knows."""
    return [(tokens, torch.zeros_like(labels)) for tokens, labels in microbatches]


class Costs:
    """Seconds of each action of a simulated schedule, and who runs beside whom.

    Parameters
    ----------
    schedule, simulated
        The order, and its times in units.
    unit_s
        Seconds of a unit.
    """

    def __init__(self, schedule: Schedule, simulated: Simulation, unit_s: float) -> None:
        durations = dict(zip(simulated.ids, (simulated.duration * unit_s).tolist(), strict=True))
        pairs = [block for order in schedule.orders for block in blocks_of(order) if len(block) == 2]
        self.second = {pair[0].id: pair[1].id for pair in pairs}
        self._pairs = {pair[0].id: durations[pair[0].id] for pair in pairs}
        self._alone = durations

    def pair_s(self, first: str) -> float:
        """Cost of an overlapped pair, by the id of its forward."""
        return self._pairs[first]

    def alone_s(self, action: str) -> float:
        """Cost of an action.

        Torch turns an I with its W right behind into a B, which then costs both.
        """
        if action in self._alone:
            return self._alone[action]
        return sum(self._alone[action.replace("/B/", f"/{kind}/")] for kind in "IW")


class Emulation(Timeline):
    """Lets every action last as long as it costs, and a message arrive no earlier than its latency allows.

    Parameters
    ----------
    costs
        Of each action, in seconds.
    latency_s
        Between an action's end and the earliest start of its consumer on another rank.
    oversleep_s
        By how much this machine sleeps longer than it is told.
    zero_s
        When the step begins, on all ranks.
    report
        Gets the rows, each while the next action sleeps.
    """

    def __init__(
        self,
        *,
        costs: Costs,
        latency_s: float = 0.0,
        oversleep_s: float = 0.0,
        zero_s: float = 0.0,
        report: Report = no_report,
    ) -> None:
        super().__init__(zero_s=zero_s, report=report)
        self.costs, self.latency_s, self.oversleep_s = costs, latency_s, oversleep_s
        self._free_s, self._ready_s = zero_s, zero_s
        self._first: tuple[str, str] | None = None
        self._told = 0

    @contextmanager
    def during(self, kind: str, action: str, message: Tensor | None = None) -> Iterator[None]:
        """Let an action take its time, and a message carry the end of the action that made it."""
        begin_s = time.monotonic()
        self.count(kind, begins=True)
        if kind == "send" and message is not None:
            stamp(message, self._free_s)
        yield
        if kind == "wait" and message is not None:
            self._await(action, message)
        elif kind in MESSAGES:
            self.note(kind, action, begin_s, time.monotonic() - begin_s, size_of(message))
        elif kind in COMPUTE:
            self._act(kind, action, begin_s)
        self.count(kind, begins=False)

    def note(self, kind: str, action: str, start_s: float, duration_s: float, size_bytes: int) -> None:
        """Write a row; it is reported later, when there is time."""
        report, self.report = self.report, no_report
        super().note(kind, action, start_s, duration_s, size_bytes)
        self.report = report

    def finish(self) -> None:
        """Report the rows that are left."""
        for row in self.rows[self._told :]:
            self.report(row)
        self._told = len(self.rows)

    def _await(self, action: str, message: Tensor) -> None:
        """A message has come: its action may begin when its latency is over."""
        arrives_s = stamped(message) + self.latency_s
        self._sleep_until(arrives_s)
        ready_s = max(arrives_s, time.monotonic() - HANDLING_S)
        self._ready_s = max(self._ready_s, ready_s)
        self.note("wait", action, self._free_s, max(0.0, ready_s - self._free_s), size_of(message))

    def _act(self, kind: str, action: str, begin_s: float) -> None:
        """Sleep until the end of an action, or of a pair at its second."""
        self._ready_s = max(self._ready_s, begin_s - HANDLING_S)
        if action in self.costs.second:
            self._first = kind, action
            return
        start_s = max(self._free_s, self._ready_s)
        first, self._first = self._first, None
        cost_s = self.costs.alone_s(action) if first is None else self.costs.pair_s(first[1])
        self.finish()
        self._sleep_until(start_s + cost_s)
        self._free_s = time.monotonic()
        for done, name in filter(None, (first, (kind, action))):
            self.note(done, name, start_s, self._free_s - start_s, 0)

    def _sleep_until(self, moment_s: float) -> None:
        time.sleep(max(0.0, moment_s - time.monotonic() - min(self.oversleep_s, LONGEST_WATCH_S)))
        while time.monotonic() < moment_s:  # woken sooner than feared; a run is never faster than its plan
            time.sleep(0)


def stamp(message: Tensor, moment_s: float) -> None:
    """Write a moment into the first bytes of a message; its content is of no interest here."""
    words = torch.tensor([moment_s], dtype=torch.float64).view(torch.uint8)
    message.detach().view(-1).view(torch.uint8)[:STAMP_BYTES].copy_(words)


def stamped(message: Tensor) -> float:
    """Read the moment that a message carries."""
    return message.detach().view(-1).view(torch.uint8)[:STAMP_BYTES].cpu().view(torch.float64).item()


def oversleep(sleep_s: float = 0.005, times: int = 21) -> float:
    """Measure by how much this machine sleeps longer than it is told: the median of several, in seconds."""
    found = []
    for _ in range(times):
        begin_s = time.monotonic()
        time.sleep(sleep_s)
        found.append(time.monotonic() - begin_s - sleep_s)
    return statistics.median(found)
