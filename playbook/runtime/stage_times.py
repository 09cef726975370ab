"""Measure here how long a stage takes against the size of its micro-batch."""

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from playbook.models.put_off import put_off
from playbook.models.transformer import Transformer, refuse_other_kinds, seed_weights
from playbook.planner.stage_times import StageTimes
from playbook.runtime.pool import Pool
from playbook.runtime.rank import current_phase, emit, here
from playbook.spec import Model
from playbook.spec import model as find_model
from playbook.spec.rules import positive, whole
from playbook.units import counted

WARM = 2
"""Runs that do not count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What is timed: layers from the middle of a model, on sequences of some length."""

    model: Model
    layers: int
    sequence: int
    repeats: int


def measure_stage_times(
    pool: Pool | None,
    model: Model | str,
    layers: int,
    sequence: int,
    micro_batches: Sequence[int] = (1, 2, 4, 8),
    *,
    repeats: int = 5,
    timeout_s: float = 300.0,
) -> StageTimes:
    """Time a stage's forward and the two parts of its backward on the machine at hand.

    Parameters
    ----------
    pool
        A pool whose rank 0 measures while the others rest; None starts one rank and ends it.
    model
        Gives the sizes of a layer: a `Model` or the name of a preset.
    layers
        Layers of the stage; it has neither embedding nor head.
    sequence
        Tokens of a sequence.
    micro_batches
        Sizes to measure, in sequences.
    repeats
        Runs of each size whose median is taken.
    timeout_s
        Seconds after which it is given up.

    Returns
    -------
    StageTimes
        BF16 on a GPU and FP32 on a CPU; source "measured:nccl" or "measured:gloo", by the pool's device.

    Raises
    ------
    ValueError, TypeError
        If a size is no whole number of at least 1, or the model is of a kind that is not computed.
    RankFailed
        If the rank fails, as when a size does not fit into memory; its text says at which size.
    TimeoutError
        If it takes too long.

    Notes
    -----
    Measured, on one rank and without messages. On a CPU, other processes that run meanwhile make it slower.
    """
    spec = find_model(model)
    refuse_other_kinds(spec)
    stage = Stage(
        model=spec,
        layers=whole("layers", layers),
        sequence=whole("sequence", sequence),
        repeats=whole("repeats", repeats),
    )
    sizes = sorted({whole("micro_batches", size) for size in micro_batches})
    if not sizes:
        raise ValueError("micro_batches is empty; give sizes in sequences, as in 1, 2, 4, 8")
    limit_s = positive("timeout_s", timeout_s)
    if pool is not None:
        return _asked(pool, stage, sizes, limit_s)
    with Pool(ranks=1) as one:
        return _asked(one, stage, sizes, limit_s)


def _asked(pool: Pool, stage: Stage, sizes: list[int], limit_s: float) -> StageTimes:
    """Have a pool's first rank measure."""
    job = pool.submit(time_sizes, stage, sizes)
    try:
        told = job.result(timeout=limit_s).values[0]
    except TimeoutError:
        job.cancel()
        raise TimeoutError(
            f"timing micro-batches of {', '.join(map(str, sizes))} took more than timeout_s={limit_s:g}; "
            f"give fewer or smaller sizes, fewer layers or a longer time"
        ) from None
    rows = told["rows"]
    return StageTimes(
        sequences=tuple(sizes),
        forward_s=tuple(row[0] for row in rows),
        backward_s=tuple(row[1] for row in rows),
        backward_input_s=tuple(row[2] for row in rows),
        backward_weight_s=tuple(row[3] for row in rows),
        source=told["source"],
        about=f"{stage.layers} x layer of {stage.model.name}, {stage.sequence} tokens, {told['machine']}",
    )


def time_sizes(stage: Stage, sizes: list[int]) -> dict[str, Any] | None:
    """On a rank: median seconds of forward, backward and its two parts, at each size; None but on rank 0."""
    seat = here()
    if seat.rank:
        return None
    device = torch.device(seat.device)
    module = middle_stage(stage, device)
    rows = []
    for done, size in enumerate(sizes):
        current_phase(f"timing a micro-batch of {size} sequence{'s' * (size > 1)}")
        rows.append(time_size(stage, module, size, device))
        emit("progress", "stage times", done=done + 1, total=len(sizes))
    gpu = device.type == "cuda"
    machine = (
        torch.cuda.get_device_name(device)
        if gpu
        else f"CPU with {counted(torch.get_num_threads(), 'thread')}"
    )
    return {"rows": rows, "machine": machine, "source": "measured:nccl" if gpu else "measured:gloo"}


def middle_stage(stage: Stage, device: torch.device) -> Transformer:
    """Layers without embedding and head: those of a model that has one more on either side."""
    whole_model = replace(stage.model, layers=stage.layers + 2)
    module = Transformer(whole_model, layers=range(1, stage.layers + 1))
    seed_weights(module, 0)
    return module.to(device=device, dtype=torch.bfloat16 if device.type == "cuda" else torch.float32)


def time_size(
    stage: Stage, module: Transformer, size: int, device: torch.device
) -> tuple[float, float, float, float]:
    """Median seconds of F, B, I and W at a size."""
    later = put_off(module)
    like = {"dtype": next(module.parameters()).dtype, "device": device}
    shape = (size, stage.sequence, stage.model.hidden)
    # Random and not zeros: the speed of a matrix product depends on its data.
    x_BSD = torch.randn(shape, **like, requires_grad=True)
    gradient_BSD = torch.randn(shape, **like)

    def together(clock: Clock) -> None:
        x_BSD.grad = None
        y_BSD = clock.timed(lambda: module(x_BSD))
        clock.timed(lambda: y_BSD.backward(gradient_BSD))

    def apart(clock: Clock) -> None:
        x_BSD.grad = None
        y_BSD = clock.timed(lambda: module(x_BSD))
        with later.putting_off() as products:
            clock.timed(lambda: y_BSD.backward(gradient_BSD))
        clock.timed(products.compute)

    forward_s, backward_s = medians(together, stage.repeats, device)
    _, input_s, weight_s = medians(apart, stage.repeats, device)
    module.zero_grad()
    return forward_s, backward_s, input_s, weight_s


class Clock:
    """Times pieces of work one after the other, each to its end on the device."""

    def __init__(self, device: torch.device) -> None:
        self.seconds: list[float] = []
        self._device = device

    def timed(self, work: Callable[[], Any]) -> Any:
        """Do a piece of work and keep its seconds."""
        self._settle()
        begin = time.perf_counter()
        made = work()
        self._settle()
        self.seconds.append(time.perf_counter() - begin)
        return made

    def _settle(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


def medians(run: Callable[[Clock], None], repeats: int, device: torch.device) -> list[float]:
    """Median seconds of each piece over several runs, without collections of garbage between."""
    clocks = [Clock(device) for _ in range(WARM + repeats)]
    gc.collect()
    gc.disable()
    try:
        for clock in clocks:
            run(clock)
    finally:
        gc.enable()
    columns = zip(*(clock.seconds for clock in clocks[WARM:]), strict=True)
    return [statistics.median(column) for column in columns]
