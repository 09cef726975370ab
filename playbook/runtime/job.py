"""A job on a pool: its state, its events as they come, its result."""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from playbook.runtime import rundir
from playbook.units import counted

if TYPE_CHECKING:
    from playbook.runtime.run import Run

Event = dict[str, Any]
Callback = Callable[[Event], None]

ENDED = ("done", "failed", "cancelled")
"""States that a job does not leave."""

_KEPT_EVENTS = 20_000
_SLICE_S = 0.1
_log = logging.getLogger(__name__)


class Owner(Protocol):
    """What a job needs of its pool."""

    def cancel(self, job: "Job") -> bool:
        """Stop a job, whether it waits or runs."""
        ...

    def follow(self, job: "Job", callback: Callback) -> None:
        """Have a callback called with the events of a job."""
        ...


class Job:
    """A job that was submitted to a pool. `Pool.submit` makes it.

    Attributes
    ----------
    name
        Name of the function or the strategy.
    title
        What it shows itself as, if not by its name.
    ranks
        World size.
    directory
        Run directory; None until the job starts.
    """

    def __init__(self, *, name: str, ranks: int, owner: Owner, keep: object = None) -> None:
        self.name = name
        self.title = ""
        self.ranks = ranks
        self.directory: Path | None = None
        self._owner = owner
        self._keep = keep  # a pool must not be collected while somebody still waits for its job
        self._state = "queued"
        self._run: Run | None = None
        self._error: BaseException | None = None
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._events: deque[Event] = deque(maxlen=_KEPT_EVENTS)
        self._progress: dict[tuple[int, str], Event] = {}
        self._callbacks: list[Callback] = []
        self._waiters: list[Callable[[], None]] = []

    @property
    def state(self) -> str:
        """One of "queued", "running", "cancelling", "done", "failed", "cancelled"."""
        return self._state

    @property
    def events(self) -> list[Event]:
        """Events so far, oldest first: the last 20 000, and of each progress only the newest.

        All of them are in the run directory.
        """
        with self._lock:
            return sorted([*self._events, *self._progress.values()], key=lambda event: event["time_s"])

    def result(self, timeout: float | None = None) -> "Run":
        """Wait for the job and return its run.

        Parameters
        ----------
        timeout
            Longest wait in seconds; the job goes on if it passes. None waits for ever.

        Raises
        ------
        RankFailed
            If a rank failed.
        JobCancelled
            If the job was cancelled.
        TimeoutError
            If the time has passed.
        KeyboardInterrupt
            If the waiting cell was interrupted; the job is cancelled.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            while not self._ended.is_set():
                left = _SLICE_S if deadline is None else min(_SLICE_S, deadline - time.monotonic())
                if left <= 0:
                    raise TimeoutError(
                        f"{self.name} is {self.state} after {timeout} s: wait longer, or cancel()"
                    )
                self._ended.wait(left)
        except KeyboardInterrupt:
            self.cancel()
            raise
        return self._outcome()

    def cancel(self) -> bool:
        """Stop the job, a hung collective included; False if it had ended already."""
        return self._owner.cancel(self)

    def on_event(self, callback: Callback) -> Callback:
        """Have `callback` called with each event, those that came before first.

        It is called from the pool's own thread, so it must be quick and not wait for a job; what it raises
        is logged.
        """
        self._owner.follow(self, callback)
        return callback

    def log(self, rank: int) -> str:
        """Everything that a rank has printed so far, native output included."""
        if not 0 <= rank < self.ranks:
            raise ValueError(
                f"rank {rank} of a job on {counted(self.ranks, 'rank')}: give 0 to {self.ranks - 1}"
            )
        if self.directory is None:
            return ""
        path = rundir.log_path(self.directory, rank)
        return path.read_text(errors="replace") if path.exists() else ""

    def __await__(self) -> Generator[Any, None, "Run"]:
        loop = asyncio.get_running_loop()
        ended = loop.create_future()

        def tell() -> None:
            loop.call_soon_threadsafe(lambda: ended.done() or ended.set_result(None))

        def beat() -> None:  # an interrupt of a Jupyter kernel does not wake its event loop
            nonlocal beating
            beating = loop.call_later(_SLICE_S, beat)

        beating = loop.call_later(_SLICE_S, beat)
        self._when_ended(tell)
        try:
            yield from ended.__await__()
        except (asyncio.CancelledError, KeyboardInterrupt):
            self.cancel()
            raise
        finally:
            beating.cancel()
        return self._outcome()

    def __repr__(self) -> str:
        return f"<Job {self.title or self.name!r} on {counted(self.ranks, 'rank')}: {self.state}>"

    def _outcome(self) -> "Run":
        if self._error is not None:
            raise self._error
        assert self._run is not None
        return self._run

    def _when_ended(self, tell: Callable[[], None]) -> None:
        with self._lock:
            if not self._ended.is_set():
                self._waiters.append(tell)
                return
        tell()

    def _enter(self, state: str) -> Event:
        """Enter a state that is not an end. Returns its event, which the pump has yet to record."""
        self._state = state
        return _state_event(state)

    def _end(self, state: str, *, run: "Run | None" = None, error: BaseException | None = None) -> Event:
        """Enter an end state and let go whoever waits. Returns its event, for the pump to deliver."""
        event = _state_event(state)
        with self._lock:
            self._state, self._run, self._error = state, run, error
            self._events.append(event)
            waiters, self._waiters = self._waiters, []
            self._keep = None
            self._ended.set()
        for tell in waiters:
            try:
                tell()
            except RuntimeError:  # its event loop is closed
                _log.debug("nobody waits for %s any more", self.name)
        return event

    def _record(self, event: Event) -> None:
        """Keep an event and tell the callbacks; the pump's thread only."""
        with self._lock:
            if event["kind"] == "progress":
                self._progress[event["rank"], event["name"]] = event
            else:
                self._events.append(event)
        self._deliver(event)

    def _deliver(self, event: Event) -> None:
        for callback in self._callbacks:
            self._tell(callback, event)

    def _welcome(self, callback: Callback) -> None:
        """Give a new callback the events so far; the pump's thread only."""
        for event in self.events:
            self._tell(callback, event)
        self._callbacks.append(callback)

    def _tell(self, callback: Callback, event: Event) -> None:
        try:
            callback(event)
        except Exception:  # a widget's mistake must not stop the pump
            _log.exception("a callback of %s failed on %s", self.name, event["kind"])


def _state_event(state: str) -> Event:
    return {"rank": -1, "time_s": time.monotonic(), "kind": "job", "name": state}
