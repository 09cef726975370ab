"""What a pool's threads share: the queue, the job that runs, the ranks that run it."""

import contextlib
import threading
import time
from collections import deque

from playbook.runtime import rundir
from playbook.runtime.crew import Crew
from playbook.runtime.errors import JobCancelled, PoolClosed
from playbook.runtime.job import ENDED, Callback, Job
from playbook.runtime.mailbox import Mailbox
from playbook.runtime.run import Run
from playbook.units import counted

CLOSE_S = 10.0
"""How long closing a pool waits for its thread."""


class Desk:
    """Jobs come in here from any thread and are handed to the pump, which reports back how they ended.

    Parameters
    ----------
    ranks
        World size, for messages.
    """

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self.mail = Mailbox()
        self.closed = False
        self.crew: Crew | None = None
        self.running: Job | None = None
        self.started_s = 0.0
        self.ended = threading.Event()
        self._lock = threading.RLock()
        self._queue: deque[tuple[Job, bytes]] = deque()

    @property
    def waiting(self) -> bool:
        """Whether a job waits for ranks."""
        return bool(self._queue)

    def submit(self, job: Job, call: bytes) -> None:
        """Put a job at the end of the queue."""
        with self._lock:
            if self.closed:
                raise PoolClosed(
                    f"this pool of {counted(self.ranks, 'rank')} is closed: make a new one with "
                    f"Pool({self.ranks})"
                )
            self._queue.append((job, call))
        self.mail.wake()

    def cancel(self, job: Job) -> bool:
        """Stop a job; a running one by killing the ranks, before anything else is done."""
        with self._lock:
            if job.state in ENDED:
                return False
            if job is self.running:
                if self.crew is not None:
                    self.crew.kill()
                event = job._enter("cancelling")
                self.mail.post(lambda: job._record(event))
            else:
                self._queue = deque(item for item in self._queue if item[0] is not job)
                event = job._end("cancelled", error=JobCancelled(f"{job.name} was cancelled while it waited"))
                self.mail.post(lambda: job._deliver(event))
        return True

    def follow(self, job: Job, callback: Callback) -> None:
        """Have a callback called, by the pump, with the events of a job."""
        self.mail.post(lambda: job._welcome(callback))

    def close(self) -> None:
        """Kill the ranks and have the pump end; it cancels what runs or waits."""
        with self._lock:
            self.closed = True
            if self.crew is not None:
                self.crew.kill()
        self.mail.wake()

    def abandon(self) -> None:
        """Have the pump close everything. It touches no job: a garbage collection may come at any moment."""
        self.closed = True
        self.mail.wake()

    def forget(self) -> None:
        """Close in a forked child, to which the ranks do not belong."""
        self.closed = True
        crew, self.crew = self.crew, None
        for member in crew.members if crew is not None else ():
            member.process.connection.close()
        self.mail.forget()
        self._lock, self.ended = threading.RLock(), threading.Event()  # the old ones may have been held
        self.ended.set()

    def install(self, crew: Crew | None) -> Crew | None:
        """Put new ranks, or none, in the place of the present ones, which are returned."""
        with self._lock:
            before, self.crew = self.crew, crew
        return before

    def begin(self) -> tuple[Job, bytes] | None:
        """Take the next job if there are idle ranks for it; it runs from now on."""
        with self._lock:
            crew = self.crew
            if crew is None or crew.killed or not crew.idle or self.running is not None or not self._queue:
                return None
            job, call = self._queue.popleft()
            self.running = job
            self.started_s = time.monotonic()
            event = job._enter("running")
        job._record(event)
        return job, call

    def conclude(self, state: str, *, run: Run | None = None, error: BaseException | None = None) -> None:
        """End the running job, on disk first; a cancellation that came meanwhile goes before its result."""
        with self._lock:
            job = self.running
            if job is None or (state == "done" and job.state == "cancelling"):
                return
            seconds = time.monotonic() - self.started_s if run is None else run.seconds
            if job.directory is not None:
                with contextlib.suppress(OSError):  # a full disk must not stop the pool
                    rundir.finish(job.directory, state=state, seconds=seconds, error=str(error or ""))
            self.running = None
            event = job._end(state, run=run, error=error)
        job._deliver(event)

    def refuse_next(self, error: BaseException) -> None:
        """End the first job that waits, which cannot start."""
        with self._lock:
            job = self._queue.popleft()[0] if self._queue else None
        if job is not None:
            job._deliver(job._end("failed", error=error))

    def clear(self, reason: str) -> None:
        """Cancel what runs and what waits."""
        with self._lock:
            self.closed = True
            queued = [job for job, _ in self._queue]
            self._queue.clear()
        if self.running is not None:
            name = self.running.name
            self.conclude("cancelled", error=JobCancelled(f"{name} was cancelled: {reason}"))
        for job in queued:
            error = JobCancelled(f"{job.name} was cancelled while it waited: {reason}")
            job._deliver(job._end("cancelled", error=error))
