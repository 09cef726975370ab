"""Starting rank processes: by a fork server that has torch loaded, or each by a fresh interpreter."""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import connection, resource_tracker, spawn
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from playbook.runtime import worker

PRELOADED = ["torch", "playbook.runtime.preload"]
"""Modules that the fork server imports before it forks a rank."""

_START_TRIES = 3
_preparing = threading.Lock()


@dataclass(slots=True, kw_only=True)
class RankProcess:
    """A running rank: its process and the kernel's end of its pipe."""

    process: BaseProcess
    connection: Connection

    @property
    def pid(self) -> int:
        """Process id."""
        assert self.process.pid is not None
        return self.process.pid

    def kill(self) -> None:
        """Kill the process by its id, unless it has ended; any thread may call this."""
        if not connection.wait([self.process.sentinel], 0):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def reap(self) -> None:
        """Wait for a killed process, then let go of its pipe; only the pump's thread may call this."""
        self.process.join(5.0)
        self.connection.close()
        with contextlib.suppress(ValueError):  # it hangs in the system and cannot be closed yet
            self.process.close()


def available_methods() -> tuple[str, ...]:
    """Start methods that are safe here, best first; never "fork", which copies a kernel with its threads."""
    return tuple(m for m in ("forkserver", "spawn") if m in multiprocessing.get_all_start_methods())


def start_rank(settings: worker.Settings) -> RankProcess:
    """Start one rank.

    Call it from a thread that lives as long as the pool: a child's death signal is tied to the thread that
    started it.
    """
    context: Any = multiprocessing.get_context(settings.method)
    if settings.method == "forkserver":
        context.set_forkserver_preload(PRELOADED)
    for last in (False,) * (_START_TRIES - 1) + (True,):
        ours, theirs = context.Pipe(duplex=True)
        process = context.Process(
            target=worker.main, args=(theirs, settings), name=f"playbook-rank{settings.rank}", daemon=False
        )
        try:
            with without_main(), sheltered_from_interrupts():
                process.start()
            return RankProcess(process=process, connection=ours)
        except (EOFError, OSError):  # the fork server died while it started
            ours.close()
            if last:
                raise
        finally:
            theirs.close()  # else the rank would never see the end of its pipe
    raise AssertionError("unreachable")


@contextlib.contextmanager
def without_main() -> Iterator[None]:
    """Keep multiprocessing from running the user's main script again in processes that this thread starts."""
    thread = threading.get_ident()
    with _preparing:
        original = spawn.get_preparation_data

        def prepare(name: str) -> dict[str, Any]:
            data = original(name)
            if threading.get_ident() == thread:
                data.pop("init_main_from_name", None)
                data.pop("init_main_from_path", None)
            return data

        spawn.get_preparation_data = prepare
        try:
            yield
        finally:
            spawn.get_preparation_data = original


@contextlib.contextmanager
def sheltered_from_interrupts() -> Iterator[None]:
    """Block SIGINT in this thread, and so in the processes it starts, until they can ignore it themselves.

    multiprocessing starts its resource tracker on the way and unblocks SIGINT then: that has to come first.
    """
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
