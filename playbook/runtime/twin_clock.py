"""How a collective that moves nothing takes its time: on a GPU a kernel that waits, on a stream of its own.

NCCL's kernels run beside compute on some of the GPU's multiprocessors, which compute does not have meanwhile.
So does the waiting kernel: as many blocks as NCCL has channels, each with so much shared memory that no block
of a large matrix product fits beside it.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

CHANNELS = 16
"""Blocks of the waiting kernel: NCCL's channels between GPUs of one node. Assumed, of NCCL's usual order."""

THREADS = 512
"""Threads of a block."""

SHARED_BYTES = 40 * 1024
"""Shared memory of a block; matrix products of Hopper take more than 187 of a multiprocessor's 227 KiB."""

LONGEST_NS = 2_000_000_000
"""A longer wait is several kernels: the argument has 32 bits."""

SOURCE = """
extern "C" __global__ void hold(int nanoseconds) {
    if (threadIdx.x == 0) {
        unsigned long long begin, now;
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
        do { asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)); }
        while (now - begin < (unsigned long long)nanoseconds);
    }
    __syncthreads();
}
"""

TRIAL_S = 2e-3
"""Wait that is timed to see whether waiting works."""


class NoClock:
    """Where there is no GPU: outputs are filled at once; time, if wanted, is slept away."""

    def __init__(self, sleeps: bool = False) -> None:
        self.sleeps = sleeps

    def run(
        self, seconds: float, fill: Callable[[], None], tensors: Sequence[Tensor], in_order: bool
    ) -> torch.futures.Future[Any]:
        """Fill, perhaps sleep, and be done."""
        fill()
        if self.sleeps:
            time.sleep(seconds)
        done: torch.futures.Future[Any] = torch.futures.Future()
        done.set_result(list(tensors))
        return done


class GpuClock:
    """Collectives of one group on a GPU: one after the other, on the group's stream.

    Parameters
    ----------
    device
        The GPU.
    hold
        Keeps the current stream busy for so many seconds.
    """

    def __init__(self, device: torch.device, hold: Callable[[float], None]) -> None:
        self.device, self.hold = device, hold
        self.stream = torch.cuda.Stream(device)

    def run(
        self, seconds: float, fill: Callable[[], None], tensors: Sequence[Tensor], in_order: bool
    ) -> torch.futures.Future[Any]:
        """Queue filling and waiting; what was called to be waited for at once stays on the caller's stream.

        The tensors are held until the caller has waited, as NCCL holds them.
        """
        stream = torch.cuda.current_stream(self.device)
        if not in_order:
            self.stream.wait_stream(stream)
            stream = self.stream
        with torch.cuda.stream(stream):
            fill()
            self.hold(seconds)
            done: torch.futures.Future[Any] = torch.futures.Future(devices=[self.device])
            done.set_result([] if in_order else list(tensors))
        return done


def make_hold(device: torch.device, channels: int = CHANNELS) -> Callable[[float], None]:
    """Make what keeps a GPU's current stream busy for so many seconds, on `channels` multiprocessors.

    A kernel of our own where torch can compile one, which reads the GPU's clock; otherwise torch's sleep of
    so many cycles, on one multiprocessor. Either is timed first.
    """
    found = held_by_kernel(channels)
    if found is not None and abs(timed(device, found) / TRIAL_S - 1) < 0.1:
        return found
    return held_by_cycles(device)


def held_by_kernel(channels: int) -> Callable[[float], None] | None:
    """A kernel of our own, or None where it cannot be compiled."""
    try:
        kernel = torch.cuda._compile_kernel(SOURCE, "hold")  # pyright: ignore[reportAttributeAccessIssue]
    except (AttributeError, ImportError, OSError, RuntimeError, ValueError):
        return None

    def hold(seconds: float) -> None:
        left = round(seconds * 1e9)
        while left > 0:
            kernel(
                grid=(channels, 1, 1),
                block=(THREADS, 1, 1),
                args=[min(left, LONGEST_NS)],
                shared_mem=SHARED_BYTES,
            )
            left -= LONGEST_NS

    return hold


def held_by_cycles(device: torch.device) -> Callable[[float], None]:
    """torch's own sleeping kernel; its cycles are timed once, at the clock that the GPU has then."""
    trial = 20_000_000
    per_second = trial / timed(device, lambda _: torch.cuda._sleep(trial))

    def hold(seconds: float) -> None:
        if seconds > 0:
            torch.cuda._sleep(round(seconds * per_second))

    return hold


def timed(device: torch.device, hold: Callable[[float], None]) -> float:
    """Seconds of one trial, after one that does not count."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    hold(TRIAL_S)
    torch.cuda.synchronize(device)
    begin.record()
    hold(TRIAL_S)
    end.record()
    torch.cuda.synchronize(device)
    return begin.elapsed_time(end) / 1e3


def hold_nothing(seconds: float) -> None:
    """The network that takes no time."""
