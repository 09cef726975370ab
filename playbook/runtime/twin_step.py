"""The twin's step: built, warmed up, its memory taken by instant, its time with and without the network."""

import gc
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import torch

from playbook.models.batch import make_batch
from playbook.runtime.part import LOOK_AWAY, Watch
from playbook.runtime.torch_private import quiet
from playbook.runtime.trace_step import Ready, default_dtype, make_optimizer
from playbook.runtime.twin_build import build_part
from playbook.runtime.twin_clock import hold_nothing
from playbook.runtime.twin_world import cluster_price, free, twin_world
from playbook.spec import Scenario

WARM_UPS = 3
"""Steps before anything is taken: optimizer state, DDP's final buckets, and the allocator's blocks settle."""

REPEATS = 5
"""Timed steps."""

ENOUGH_S = 20.0
"""No timed step begins after so much timed work."""

INSTANTS = ("between steps", "forward", "after forward", "backward", "after backward", "optimizer")
"""When memory is taken: the peak of each phase, and what is left after it."""


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
        self.phase = {"F": "forward", "B": "backward", "O": "optimizer"}[phase]

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


class TwinStep:
    """One rank's optimizer step, ready to be taken."""

    def __init__(self, ready: Ready, microbatches: list[Any], meter: Meter) -> None:
        self.ready, self.microbatches, self.meter = ready, microbatches, meter

    def take(self, watch: Watch = LOOK_AWAY) -> None:
        """Forward and backward of every micro-batch, then the optimizer."""
        self.ready.part.forward_backward(self.microbatches, watch)
        watch.enter(-1, "O")
        self.ready.optimizer.step()
        self.ready.optimizer.zero_grad()

    def instants(self) -> list[Instant]:
        """Memory of one step."""
        watch = Instants(self.meter)
        self.take(watch)
        watch.close()
        return watch.rows()

    def times(self, repeats: int) -> list[float]:
        """Seconds of several steps, each from an idle device to an idle device."""
        found: list[float] = []
        while len(found) < repeats and sum(found) < ENOUGH_S:
            self.meter.settle()
            begin = time.perf_counter()
            self.take()
            self.meter.settle()
            found.append(time.perf_counter() - begin)
        return found


def run_twin(
    scenario: Scenario,
    rank: int,
    *,
    network: str,
    device: torch.device,
    hold: Callable[[float], None] = hold_nothing,
    build: str | None = None,
    repeats: int = REPEATS,
) -> dict[str, Any]:
    """Take the step of one rank of a scenario on a device.

    Parameters
    ----------
    scenario, rank
        Whose step.
    network
        "modelled": collectives take what the scenario's cluster would; "off": none.
    device
        A GPU that is current, or a CPU, where memory is 0.
    hold
        Keeps a stream of the GPU busy for so many seconds.
    build
        `FILE.py:FUNCTION` of a user's own model.
    repeats
        Timed steps, with the network and without.

    Returns
    -------
    dict
        instants, peak_bytes, reserved_bytes, seconds, repeats_s, compute_s (the step without the network) and
        exposed_s (what it adds).
    """
    switch, priced = {"on": network == "modelled"}, cluster_price(scenario.cluster)

    def price(*call: Any) -> float:
        return priced(*call) if switch["on"] else free(*call)

    dtype = torch.bfloat16 if scenario.recipe.parameter_bytes == 2 else torch.float32
    with (
        twin_world(degrees_of(scenario), rank, device, price, hold) as places,
        default_dtype(dtype),
        quiet(),
        cleared(device),
    ):
        step = make_step(scenario, places, device, build)
        for _ in range(WARM_UPS):
            step.take()
        found = step.instants()
        repeats_s = step.times(repeats)
        switch["on"] = False
        alone_s = step.times(repeats) if network == "modelled" else repeats_s
        del step
    seconds, compute_s = statistics.median(repeats_s), statistics.median(alone_s)
    return {
        "instants": [asdict(row) for row in found],
        "peak_bytes": max(row.allocated_bytes for row in found),
        "reserved_bytes": max(row.reserved_bytes for row in found),
        "seconds": seconds,
        "repeats_s": repeats_s,
        "compute_s": compute_s,
        "exposed_s": max(0.0, seconds - compute_s),
    }


def degrees_of(scenario: Scenario) -> dict[str, int]:
    """Axes with more than one rank, outermost first; a world of one has an axis too."""
    degrees = {axis: degree for axis, degree in reversed(scenario.layout.axes) if degree > 1}
    return degrees or {"dp": 1}


def make_step(scenario: Scenario, places: Any, device: torch.device, build: str | None) -> TwinStep:
    """Build the rank's part, its optimizer and its micro-batches."""
    part = build_part(scenario, places, device, build)
    axes = {str(place.group.group_name): axis for axis, place in places.items()}
    batch = make_batch(
        scenario.model,
        sequences=scenario.workload.micro_batch * scenario.microbatches,
        sequence=scenario.workload.sequence,
        seed=0,
        device=device,
    )
    ready = Ready(part, make_optimizer(scenario, part.module), axes)
    return TwinStep(ready, batch.cut(scenario.microbatches), Meter(device))


@contextmanager
def cleared(device: torch.device) -> Iterator[None]:
    """Give a GPU's memory back before and after, with what cuBLAS keeps."""
    clear(device)
    try:
        yield
    finally:
        clear(device)


def clear(device: torch.device) -> None:
    """Give back what nothing holds any more."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch._C._cuda_clearCublasWorkspaces()  # pyright: ignore[reportAttributeAccessIssue]
        torch.cuda.empty_cache()
