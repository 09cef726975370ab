"""Memory of a step by instant, from the allocator's own counters."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from playbook.runtime.part import Watch
from playbook.runtime.pipeline_executor import COMPUTE

INSTANTS = ("between steps", "forward", "after forward", "backward", "after backward", "optimizer")
"""When memory is taken: the peak of each phase, and what is left after it."""


PHASES = {"F": "forward", "B": "backward", "O": "optimizer"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Instant:
    """Most bytes at one instant of a step, over its micro-batches.

    Parameters
    ----------
    instant
        One of `INSTANTS`.
    allocated_bytes
        What the allocator had handed out.
    reserved_bytes
        What it had taken from the driver.
    """

    instant: str
    allocated_bytes: int
    reserved_bytes: int


class Meter:
    """A GPU's allocator, whose peaks can be forgotten; on a CPU everything is 0."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.counts = device, device.type == "cuda"

    def now(self) -> tuple[int, int]:
        """Bytes that are handed out, and taken from the driver."""
        if not self.counts:
            return 0, 0
        return torch.cuda.memory_allocated(self.device), torch.cuda.memory_reserved(self.device)

    def peak(self) -> tuple[int, int]:
        """The most of both since the last call."""
        if not self.counts:
            return 0, 0
        found = torch.cuda.max_memory_allocated(self.device), torch.cuda.max_memory_reserved(self.device)
        torch.cuda.reset_peak_memory_stats(self.device)
        return found

    def settle(self) -> None:
        """Wait for what is queued."""
        if self.counts:
            torch.cuda.synchronize(self.device)


class Instants(Watch):
    """Takes memory as a step enters its phases: allocation is known at once, before the GPU is done."""

    def __init__(self, meter: Meter) -> None:
        self.meter, self.phase, self.found = meter, "", dict[str, tuple[int, int]]()
        meter.peak()
        self.note("between steps", meter.now())

    def enter(self, microbatch: int, phase: str) -> None:
        """Close the phase that was, and begin another."""
        self.close()
        self.phase = PHASES[phase]

    @contextmanager
    def during(self, kind: str, action: str, message: Tensor | None = None) -> Iterator[None]:
        """Begin a phase with every action of a pipeline; what lies between two belongs to the first."""
        if kind in COMPUTE:
            self.enter(-1, kind[0].upper())
        yield

    def close(self) -> None:
        """Note the peak of the phase that ends, and what is left."""
        peak, now = self.meter.peak(), self.meter.now()
        if self.phase:
            self.note(self.phase, peak)
        if self.phase in ("forward", "backward"):
            self.note(f"after {self.phase}", now)

    def note(self, instant: str, sizes: tuple[int, int]) -> None:
        """Keep the most of each."""
        before = self.found.get(instant, (0, 0))
        self.found[instant] = max(before[0], sizes[0]), max(before[1], sizes[1])

    def rows(self) -> list[Instant]:
        """What was found, in the order of a step."""
        return [
            Instant(instant=name, allocated_bytes=self.found[name][0], reserved_bytes=self.found[name][1])
            for name in INSTANTS
            if name in self.found
        ]
