"""What a rank does for safety: it ends with the kernel, ignores interrupts, and logs what it prints."""

import contextlib
import ctypes
import fcntl
import multiprocessing
import os
import signal
import sys
from pathlib import Path


def die_with_kernel(method: str) -> None:
    """Make sure that this process ends with the kernel, whatever its threads are doing.

    Parameters
    ----------
    method
        How it was started: under "spawn" the kernel is the parent, under "forkserver" the fork server is.

    Notes
    -----
    The thread that reads the pipe is the first guard, but it needs the interpreter lock. The second is the
    descriptor that multiprocessing gives each child and that closes with the kernel: the system then kills
    this process. The third, on Linux, is the death signal of the process that forked it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it reaches the kernel's whole process group
    kernel = multiprocessing.parent_process()
    if kernel is None:
        return
    with contextlib.suppress(OSError):  # not every system sends signals for pipes
        _signal_at_end(kernel.sentinel)
    if sys.platform == "linux":
        parent = os.getppid()
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        orphaned = method == "spawn" and parent != kernel.pid
        if orphaned or os.getppid() != parent:
            os._exit(0)


def redirect_output(path: Path) -> None:
    """Append descriptors 1 and 2 to a file: what native code prints is caught as well."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    os.dup2(target, 1)
    os.dup2(target, 2)
    os.close(target)


_PR_SET_PDEATHSIG = 1


def _signal_at_end(pipe: int) -> None:
    """Have the system send a signal when a pipe's other end closes: SIGKILL, or SIGIO if it cannot choose."""
    fcntl.fcntl(pipe, fcntl.F_SETOWN, os.getpid())
    if hasattr(fcntl, "F_SETSIG"):
        fcntl.fcntl(pipe, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(pipe, fcntl.F_SETFL, fcntl.fcntl(pipe, fcntl.F_GETFL) | os.O_ASYNC)
