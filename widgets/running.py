"""Runs of an explorer: one warm pool a kernel, a job at a time, events into the picture ten times a second.

The kernel never waits: `run` returns the job at once, the pool's pump thread brings the events. Runs never
start by themselves.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from playbook.runtime.errors import RankFailed
from playbook.units import counted
from widgets.base import Explorer
from widgets.outcome import outcome
from widgets.pool import ENDED, Task, submit

if TYPE_CHECKING:
    from playbook.runtime.job import Job
    from playbook.runtime.run import Run

REDRAW_S = 0.1


class RunningExplorer(Explorer):
    """An explorer whose buttons run real ranks.

    A subclass gives `task` for a button's name, takes events in `take` and the finished run in `finish`,
    and says how far each phase has come in `progress`. All of them are called under the explorer's lock.
    """

    ANSWERS: ClassVar[tuple[str, ...]] = (*Explorer.ANSWERS, "cancel", "remedy")

    def __init__(self, **given: Any) -> None:
        self._job: Job | None = None
        self._task: Task | None = None
        self._events: list[dict[str, Any]] = []
        self._drawn_s = 0.0
        self._timer: threading.Timer | None = None
        self._ended = threading.Event()
        self._up = False
        self._fault = ""
        super().__init__(**given)

    def task(self, name: str) -> Task:
        """What a button runs, for the controls as they stand."""
        raise NotImplementedError

    def take(self, events: Sequence[dict[str, Any]]) -> None:
        """Take new events of the running job into what will be drawn."""

    def finish(self, run: Run) -> None:
        """Take the finished run into what will be drawn."""

    def progress(self) -> Sequence[float]:
        """Part of each phase of the task that is done, 0 to 1."""
        return [0.0] * len(self._task.phases if self._task else ())

    @property
    def job(self) -> Job | None:
        """The last job, running or ended; None before the first."""
        return self._job

    def run(self, wait: bool = False, button: str = "run") -> Job:
        """Run the scenario on real ranks and draw what they do.

        Parameters
        ----------
        wait
            Return only when the run has ended and is drawn; a failed run then raises.
        button
            Which of the explorer's buttons to press.

        Raises
        ------
        ValueError
            If a run is in progress, or the scenario cannot run here.
        """
        if self._job is not None and self._job.state not in ENDED:
            raise ValueError("a run is in progress; wait for it with .wait(), or stop it with .cancel()")
        if self.refusal:
            raise ValueError(self.refusal["text"])
        with self._lock:
            task = self.task(button)
        job = submit(task)  # outside the lock: an old pool that is closed here may still be calling back
        with self._lock:
            self._job, self._task, self._events, self._up, self._fault = job, task, [], False, ""
            self._ended = threading.Event()
            self._show_status("queued")
        job.on_event(lambda event: self._on_event(job, event))
        if wait:
            self.wait()
        return job

    def wait(self, timeout: float | None = None) -> Run:
        """Wait until the last run has ended and is drawn.

        Raises
        ------
        ValueError
            If nothing was run.
        RankFailed, JobCancelled, TimeoutError
            As `Job.result`.
        """
        if self._job is None:
            raise ValueError("nothing was run yet; call .run() first")
        try:
            run = self._job.result(timeout)
        finally:
            if self._job.state in ENDED and not self._ended.wait(1.0):
                self._end(self._job)  # the pump is busy, as while ranks start
        return run

    def cancel(self) -> bool:
        """Stop the run; what was measured stays. False if none is in progress."""
        if self._job is None or not self._job.cancel():
            return False
        if self._job.state in ENDED:
            self._end(self._job)
        return True

    def on_run(self, _: Any) -> None:
        """Answer the Run button."""
        self.run()

    def on_cancel(self, _: Any) -> None:
        """Answer the Cancel button."""
        self.cancel()

    def on_remedy(self, message: Mapping[str, Any]) -> None:
        """Set the controls as a remedy says, and run again."""
        status: dict[str, Any] = dict(self.status)
        remedy = status["failure"]["remedies"][int(message["index"])]
        with self.hold_trait_notifications():
            for name, value in remedy["set"].items():
                setattr(self, name, value)
        self.run()

    def put(self, change: Any = None) -> None:
        """Draw the controls as they stand; a changed control takes the last run's verdict away."""
        if change is not None and change.name in self.CONTROLS and self.status.get("state") in ENDED:
            with self._lock, self.hold_sync():
                self.status = {"state": "idle"}
                super().put(change)
            return
        super().put(change)

    def remedies(self, failed: RankFailed) -> list[dict[str, Any]]:
        """At most two changes of controls that would help, each with `words` and `set`."""
        return []

    def _on_event(self, job: Job, event: dict[str, Any]) -> None:
        """Called from the pump's thread; late events of an earlier job are nobody's."""
        with self._lock:
            if job is not self._job or self._ended.is_set():
                return
            if event["kind"] == "job":
                self._on_state(event["name"])
                return
            self._up = True
            self._events.append(event)
            self._draw_soon()

    def _on_state(self, state: str) -> None:
        assert self._job is not None
        if state in ENDED:
            self._end(self._job)
            return
        self._take_events()
        self._show_status(state)

    def _end(self, job: Job) -> None:
        """Draw the end of a job, once."""
        with self._lock:
            if self._ended.is_set():
                return
            self._take_events()
            try:
                self.finish(job.result(0))
            except Exception as ended:
                self._show_end(job.state, ended)
            else:
                self._show_end(job.state, None)
            self._ended.set()

    def _draw_soon(self) -> None:
        """Draw now if the last picture is a tenth of a second old, else when it is."""
        if self._timer is not None:  # it may be late, and would draw once more
            return
        wait = self._drawn_s + REDRAW_S - time.monotonic()
        if wait <= 0:
            self._draw_live()
        else:
            self._timer = threading.Timer(wait, self._draw_live)
            self._timer.daemon = True
            self._timer.start()

    def _draw_live(self) -> None:
        with self._lock:
            self._timer = None
            if self._job is None or self._job.state in ENDED:
                return
            self._take_events()
            self._show_status(self._job.state)

    def _take_events(self) -> None:
        events, self._events = self._events, []
        try:
            if events:
                self.take(events)
        except Exception as fault:
            self.last_error = traceback.format_exc()
            self._fault = f"internal error: {type(fault).__name__}: {fault} (see .last_error)"
            if self._job is not None:  # not from here: this is the pump's own thread
                threading.Thread(target=self._job.cancel, daemon=True).start()

    def _show_status(self, state: str) -> None:
        """Redraw with where the run stands."""
        assert self._task is not None
        self._drawn_s = time.monotonic()
        parts = [1.0 if self._up else 0.5, *self.progress()]
        names = ["ranks up", *self._task.phases]
        words = {"queued": "starting", "cancelling": "cancelling"}.get(state, "running")
        with self.hold_sync():
            self.status = {
                "state": state,
                "word": words,
                "headline": [f"Running on {counted(self._task.ranks, 'rank')}:", self._task.what],
                "phases": [{"name": name, "part": part} for name, part in zip(names, parts, strict=True)],
                "note": "Other cells stay usable. Esc cancels within a second; what was measured is kept.",
            }
            self.put()

    def _show_end(self, state: str, error: BaseException | None) -> None:
        with self.hold_sync():
            remedies = self.remedies(error) if isinstance(error, RankFailed) else []
            self.status = {"state": state, **outcome(error, self._fault, remedies)}
            self.put()
