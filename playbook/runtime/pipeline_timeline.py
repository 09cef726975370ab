"""The clock of a pipeline rank: when each action, wait and send begins and ends."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from playbook.program.ids import parse
from playbook.runtime.part import Watch
from playbook.runtime.pipeline_executor import COMPUTE

Report = Callable[[dict[str, Any]], None]
BEGINS, ENDS = "forward", ("backward", "backward_weight")
"""A micro-batch is alive on a stage from the start of its forward to the end of its last backward."""
DRAIN = "drain"
"""Waiting until a message has left, which the library does here and there."""
MESSAGES = {"send": "/send@pp#0", DRAIN: "/send@pp#0", "collective": "/all_reduce@pp#0"}
"""What the id of a row has behind its action's."""


def no_report(_row: dict[str, Any]) -> None:
    """Tell nobody."""


class Timeline(Watch):
    """Notes the time of everything on the clock that all ranks of a machine share.

    Parameters
    ----------
    zero_s
        Moment of the monotonic clock that is 0 in the rows.
    report
        Gets every row as it ends.
    """

    def __init__(self, *, zero_s: float = 0.0, report: Report = no_report) -> None:
        self.zero_s, self.report = zero_s, report
        self.rows: list[dict[str, Any]] = []
        self.peak_live = 0
        """Most micro-batches alive at once, counted over the stages of this rank."""
        self._live = 0

    @contextmanager
    def during(self, kind: str, action: str, message: Tensor | None = None) -> Iterator[None]:
        """Time one action, wait or send."""
        self.count(kind, begins=True)
        start_s = time.monotonic()
        yield
        if kind != "receive":
            self.note(kind, action, start_s, time.monotonic() - start_s, size_of(message))
        self.count(kind, begins=False)

    def count(self, kind: str, begins: bool) -> None:
        """Count what is alive."""
        if begins and kind == BEGINS:
            self._live += 1
            self.peak_live = max(self.peak_live, self._live)
        elif not begins and kind in ENDS:
            self._live -= 1

    def note(self, kind: str, action: str, start_s: float, duration_s: float, size_bytes: int) -> None:
        """Write a row and report it."""
        row = make_row(kind, action, start_s - self.zero_s, duration_s, size_bytes)
        self.rows.append(row)
        self.report(row)

    def finish(self) -> None:
        """Write what is not written yet, after the step."""


class CudaTimeline(Timeline):
    """The same by events on the stream that computes, so that the step runs on undisturbed.

    One moment is known on both clocks: an event that is waited for before the step begins. A wait lasts as
    long as the stream stands still for it.
    """

    def __init__(self, *, device: torch.device, zero_s: float = 0.0, report: Report = no_report) -> None:
        super().__init__(zero_s=zero_s, report=report)
        self.device = device
        self._noted: list[tuple[str, str, torch.cuda.Event, torch.cuda.Event, int]] = []
        torch.cuda.synchronize(device)
        self._anchor = self._mark()
        self._anchor.synchronize()
        self._anchor_s = time.monotonic()

    @contextmanager
    def during(self, kind: str, action: str, message: Tensor | None = None) -> Iterator[None]:
        """Put an event on the stream before and after."""
        self.count(kind, begins=True)
        begin = self._mark()
        yield
        if kind != "receive":
            self._noted.append((kind, action, begin, self._mark(), size_of(message)))
        self.count(kind, begins=False)

    def finish(self) -> None:
        """Wait for the device and turn the events into rows."""
        torch.cuda.synchronize(self.device)
        for kind, action, begin, end, size_bytes in self._noted:
            start_s = self._anchor_s + self._anchor.elapsed_time(begin) / 1e3
            self.note(kind, action, start_s, begin.elapsed_time(end) / 1e3, size_bytes)
        self._noted.clear()

    def _mark(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self.device))
        return event


def size_of(message: Tensor | None) -> int:
    """Bytes of a message, 0 without one."""
    return message.nbytes if message is not None else 0


def make_row(kind: str, action: str, start_s: float, duration_s: float, size_bytes: int) -> dict[str, Any]:
    """Return a row of the timeline table.

    Examples
    --------
    >>> row = make_row("send", "m1/F/stage2", 0.5, 0.25, 768)
    >>> row["op"], row["label"], row["lane"]
    ('m1/F/stage2/send@pp#0', '2F1', 'communication')
    """
    made = parse(action)
    return {
        "op": action + MESSAGES.get(kind, ""),
        "lane": "compute" if kind in COMPUTE else "communication",
        "kind": "wait" if kind == DRAIN else kind,
        "label": f"{made.owner.removeprefix('stage')}{made.phase}{made.microbatch}",
        "microbatch": made.microbatch,
        "start_s": start_s,
        "duration_s": duration_s,
        "low_s": duration_s,
        "high_s": duration_s,
        "bytes": size_bytes,
    }
