"""Waiting: for what comes sooner or later, and for the end of processes that are not our children."""

import time
from collections.abc import Callable, Iterable

import psutil


def wait_until(is_so: Callable[[], bool], patience_s: float = 60.0) -> None:
    """Wait until something is so; a busy machine may take its time."""
    deadline = time.monotonic() + patience_s
    while not is_so():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.02)


def left_running(processes: Iterable[psutil.Process], patience_s: float = 60.0) -> list[psutil.Process]:
    """Those that still run when the patience is over; a zombie has ended, whoever has yet to reap it."""
    deadline = time.monotonic() + patience_s
    left = [process for process in processes if runs(process)]
    while left and time.monotonic() < deadline:
        time.sleep(0.02)
        left = [process for process in left if runs(process)]
    return left


def runs(process: psutil.Process) -> bool:
    """Whether a process has not ended; another one that was given its number is not it."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
