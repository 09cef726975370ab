"""How a collective that moves nothing takes its time: on a GPU a kernel that waits, on a stream of its own.

NCCL's kernels run beside compute on some of the GPU's multiprocessors, which compute does not have meanwhile.
So does the waiting kernel: as many blocks as NCCL has channels, each with so much shared memory that no block
of a large matrix product fits beside it.
"""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.utils import cpp_extension

CHANNELS = 16
"""Blocks of the waiting kernel: NCCL's channels between GPUs of one node. Assumed, of NCCL's usual order."""

THREADS = 512
"""Threads of a block."""

SHARED_BYTES = 40 * 1024
"""Shared memory of a block; matrix products of Hopper take more than 187 of a multiprocessor's 227 KiB."""

LONGEST_NS = 2_000_000_000
"""No wait is longer: the argument has 32 bits."""

SOURCE = """
extern "C" __global__ void mark(unsigned long long* begin) {
    unsigned long long now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    *begin = now;
}
extern "C" __global__ void hold(unsigned long long* begin, int nanoseconds) {
    if (threadIdx.x == 0) {
        unsigned long long now, end = *begin + (unsigned long long)nanoseconds;
        do { asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)); } while (now < end);
    }
    __syncthreads();
}
"""
"""`mark` writes down when a collective begins, `hold` ends so long after it."""

SLOTS = 256
"""Collectives that may be under way at once, each with a place of its own for its beginning."""

TRIAL_S = 2e-3
"""Wait that is timed to see whether waiting works."""

TRIAL_CYCLES = 4_000_000
"""About as long at a GPU's clock."""

TOLERANCE = 0.1
"""Part by which that wait may be off."""


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
        Keeps the current stream busy for so many seconds, what is queued inside it included.
    """

    def __init__(self, device: torch.device, hold: "Hold") -> None:
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
            with self.hold(seconds):
                fill()
            done: torch.futures.Future[Any] = torch.futures.Future(devices=[self.device])
            done.set_result([] if in_order else list(tensors))
        return done


def make_hold(device: torch.device, channels: int = CHANNELS) -> "Hold":
    """Make what keeps a GPU's current stream busy for so many seconds, on `channels` multiprocessors.

    A kernel of our own where torch can compile one, which reads the GPU's clock; otherwise torch's sleep of
    so many cycles, on one multiprocessor. Either is timed first.
    """
    try:
        found = ByKernel(device, channels)
        right = abs(timed(device, found) / TRIAL_S - 1) < TOLERANCE
    except (AttributeError, ImportError, OSError, RuntimeError, TypeError, ValueError):
        return ByCycles(device)
    return found if right else ByCycles(device)


class ByKernel:
    """Waits by a kernel of our own: what is queued inside counts as part of the wait."""

    def __init__(self, device: torch.device, channels: int) -> None:
        self.channels, self.turn = channels, 0
        self.slots = torch.zeros(SLOTS, dtype=torch.int64, device=device).unbind()
        home = cpp_extension.CUDA_HOME or sys.prefix  # the source includes nothing that would lie there
        with patch.object(cpp_extension, "CUDA_HOME", home):
            self._mark, self._hold = (torch.cuda._compile_kernel(SOURCE, name) for name in ("mark", "hold"))  # pyright: ignore[reportAttributeAccessIssue]

    @contextmanager
    def __call__(self, seconds: float) -> Iterator[None]:
        """Keep the current stream busy."""
        nanoseconds = min(round(seconds * 1e9), LONGEST_NS)
        if nanoseconds <= 0:
            yield
            return
        self.turn = (self.turn + 1) % SLOTS
        slot = self.slots[self.turn]
        self._mark(args=[slot])
        yield
        self._hold(
            grid=(self.channels, 1, 1),
            block=(THREADS, 1, 1),
            args=[slot, nanoseconds],
            shared_mem=SHARED_BYTES,
        )


class ByCycles:
    """Waits by torch's own sleeping kernel; its cycles are timed once, at the clock that the GPU has then."""

    def __init__(self, device: torch.device) -> None:
        self.per_second = TRIAL_CYCLES / TRIAL_S  # so that the trial is so many cycles
        self.per_second *= TRIAL_S / timed(device, self)

    @contextmanager
    def __call__(self, seconds: float) -> Iterator[None]:
        """Keep the current stream busy, behind what is queued inside."""
        yield
        if seconds > 0:
            torch.cuda._sleep(round(seconds * self.per_second))


def timed(device: torch.device, hold: "Hold") -> float:
    """Seconds of one trial, after one that does not count."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(2):
        torch.cuda.synchronize(device)
        begin.record()
        with hold(TRIAL_S):
            pass
        end.record()
    torch.cuda.synchronize(device)
    return begin.elapsed_time(end) / 1e3


def hold_nothing(seconds: float) -> AbstractContextManager[None]:
    """The network that takes no time."""
    return nullcontext()


Hold = Callable[[float], AbstractContextManager[None]]
"""Keeps the current stream busy for so many seconds, what is queued inside included."""
