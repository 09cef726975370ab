"""The twin's step: built, warmed up, its memory taken by instant, its time with and without the network."""

import gc
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import torch

from playbook.models.batch import make_batch
from playbook.runtime.action_owners import Together
from playbook.runtime.cuda_kernels import core_of
from playbook.runtime.part import LOOK_AWAY, Watch
from playbook.runtime.torch_private import quiet
from playbook.runtime.trace_build import Ready
from playbook.runtime.trace_step import default_dtype, degrees
from playbook.runtime.twin_arrivals import Arrivals, arrivals_of
from playbook.runtime.twin_clock import Hold, hold_nothing
from playbook.runtime.twin_instants import Instant, Instants, Meter
from playbook.runtime.twin_parts import prepare_twin
from playbook.runtime.twin_scope import as_run
from playbook.runtime.twin_terms import terms_of_step
from playbook.runtime.twin_world import Network, cluster_price, twin_world
from playbook.spec import Scenario

WARM_UPS = 3
"""Steps before anything is taken: optimizer state, DDP's final buckets, and the allocator's blocks settle."""

REPEATS = 5
"""Timed steps."""

ENOUGH_S = 20.0
"""No timed step begins after so much timed work."""


class TwinStep:
    """One rank's optimizer step, ready to be taken."""

    def __init__(self, ready: Ready, microbatches: list[Any], meter: Meter, arrivals: Arrivals) -> None:
        self.ready, self.microbatches, self.meter, self.arrivals = ready, microbatches, meter, arrivals

    def take(self, watch: Watch = LOOK_AWAY) -> None:
        """Forward and backward of every micro-batch, then the optimizer."""
        if self.ready.part.by_action:
            self.arrivals.begin()
            watch = Together(watch, self.arrivals)
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
    hold: Hold = hold_nothing,
    build: str | None = None,
    repeats: int = REPEATS,
    with_terms: bool = False,
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
    with_terms
        Whether to record one more step for what the peak is made of.

    Returns
    -------
    dict
        instants, peak_bytes, reserved_bytes, seconds, repeats_s, compute_s (the step without the network),
        exposed_s (what it adds) and, if asked for, terms, op and context_bytes.
    """
    arrivals = Arrivals()
    net = Network(cluster_price(scenario.cluster), arrivals.wait_s, network == "modelled")
    dtype = torch.bfloat16 if scenario.recipe.parameter_bytes == 2 else torch.float32
    with (
        twin_world(degrees(scenario), rank, device, net.price, hold, net.wait_s) as places,
        default_dtype(dtype),
        core_of(scenario.workload.attention),
        quiet(),
        cleared(device),
    ):
        step = make_step(scenario, places, device, build, arrivals)
        for _ in range(WARM_UPS):
            step.take()
        found = step.instants()
        compute_s, repeats_s = timed_twice(scenario, rank, step, net, repeats)
        peak, reserved = (max(sizes) for sizes in zip(*map(sizes_of, found), strict=True))
        terms = terms_of_step(step, peak, reserved) if with_terms else {}
        del step
    seconds = statistics.median(repeats_s)
    return {
        "instants": [asdict(row) for row in found],
        "peak_bytes": peak,
        "reserved_bytes": reserved,
        "seconds": seconds,
        "repeats_s": repeats_s,
        "compute_s": compute_s,
        "exposed_s": max(0.0, seconds - compute_s),
        **terms,
    }


def timed_twice(
    scenario: Scenario, rank: int, step: TwinStep, net: Network, repeats: int
) -> tuple[float, list[float]]:
    """Median seconds of the step without the network, then seconds of each with it, if it takes any."""
    wanted, net.on = net.on, False
    alone_s = step.times(repeats)
    net.on = wanted
    compute_s = statistics.median(alone_s)
    if not wanted:
        return compute_s, alone_s
    if scenario.layout.pp > 1:
        step.arrivals.due_s = arrivals_of(as_run(scenario), rank, compute_s)
    return compute_s, step.times(repeats)


def sizes_of(row: Instant) -> tuple[int, int]:
    """Allocated and reserved bytes."""
    return row.allocated_bytes, row.reserved_bytes


def make_step(
    scenario: Scenario, places: Any, device: torch.device, build: str | None, arrivals: Arrivals
) -> TwinStep:
    """Build the rank's part, its optimizer and its micro-batches."""
    batch = make_batch(
        scenario.model,
        sequences=scenario.workload.micro_batch * scenario.microbatches,
        sequence=scenario.workload.sequence,
        seed=0,
        device=device,
    )
    ready = prepare_twin(scenario, places, device, build)
    return TwinStep(ready, batch.cut(scenario.microbatches), Meter(device), arrivals)


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
