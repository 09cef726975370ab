"""The thread that owns a pool's ranks: it starts them, hands them jobs, drains their pipes and buries them.

Starting ranks from this thread keeps the kernel free, and keeps the death signal of spawned ranks right: it is tied
to the thread that started them.
"""

import contextlib
import logging
import os
import shutil
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable
from multiprocessing import connection
from pathlib import Path
from typing import Any

from playbook.runtime import limits, payload, rundir
from playbook.runtime.crew import Crew, Plan
from playbook.runtime.errors import Failure, JobCancelled, PoolClosed, RankFailed
from playbook.runtime.job import ENDED, Job
from playbook.runtime.run import Run
from playbook.runtime.verdict import judge

_CLOSE_S = 10.0
_log = logging.getLogger(__name__)


class Pump:
    """Runs a pool. `submit`, `cancel`, `close` and `wake` may be called from any thread.

    Parameters
    ----------
    plan
        Ranks, backend and how to start them.
    describe
        What is written into each run.json besides the job's name.
    """

    def __init__(self, plan: Plan, describe: dict[str, Any]) -> None:
        self.plan = plan
        self.closed = False
        self.crew: Crew | None = None
        self._describe = describe
        self._folder = Path(tempfile.mkdtemp(prefix=f"playbook-{os.getpid()}-"))  # of mode 0700
        self._lock = threading.RLock()
        self._queue: deque[tuple[Job, bytes]] = deque()
        self._running: Job | None = None
        self._started_s = 0.0
        self._tasks: deque[Callable[[], None]] = deque()
        self._ended = False
        self._generation = 0
        self._numbers = 0
        self._eager = True
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self.thread = threading.Thread(target=self._run, name="playbook-pump", daemon=True)
        self.thread.start()

    @property
    def running(self) -> Job | None:
        """The job that runs, if any."""
        return self._running

    def submit(self, job: Job, call: bytes) -> None:
        """Put a job at the end of the queue."""
        with self._lock:
            if self.closed:
                raise PoolClosed(
                    f"the pool of {self.plan.ranks} ranks is closed: make a new one, Pool({self.plan.ranks})"
                )
            self._queue.append((job, call))
        self._wake()

    def cancel(self, job: Job) -> bool:
        """Stop a job; a running one by killing the ranks, before anything else is done."""
        with self._lock:
            if job.state in ENDED:
                return False
            if job is self._running:
                if self.crew is not None:
                    self.crew.kill()
                event = job._enter("cancelling")
                self.post(lambda: job._record(event))
            else:
                self._queue = deque(item for item in self._queue if item[0] is not job)
                event = job._end(
                    "cancelled", error=JobCancelled(f"{job.name} was cancelled before it started")
                )
                self.post(lambda: job._deliver(event))
        return True

    def post(self, task: Callable[[], None]) -> None:
        """Run a task on the pump's thread, or at once if that has ended."""
        with self._lock:
            alive = not self._ended
            if alive:
                self._tasks.append(task)
        if alive:
            self._wake()
        else:
            task()

    def close(self) -> None:
        """Kill the ranks, cancel what waits and end the thread."""
        with self._lock:
            self.closed = True
            if self.crew is not None:
                self.crew.kill()
        self._wake()
        if threading.current_thread() is not self.thread:
            self.thread.join(_CLOSE_S)

    def abandon(self) -> None:
        """Close without waiting and without locks, so that a garbage collection may call it at any moment."""
        self.closed = True
        self._wake()

    def forget(self) -> None:
        """Drop everything without a word to the ranks: for a forked child, to which they do not belong."""
        self.closed = self._ended = True
        crew, self.crew = self.crew, None
        for member in crew.members if crew is not None else ():
            member.process.connection.close()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # full, or the pump has ended
            os.write(self._wake_write, b"!")

    def _run(self) -> None:
        problem: BaseException | None = None
        try:
            while not self.closed:
                self._turn()
        except BaseException as unexpected:  # nobody may wait for ever on a thread that has died
            problem = unexpected
            _log.exception("the pool's thread has failed")
        finally:
            self._end(problem)

    def _turn(self) -> None:
        self._run_tasks()
        self._keep_crew()
        self._dispatch()
        crew = self.crew
        timeout = None
        if crew is not None and crew.grace_until is not None:
            timeout = max(0.0, crew.grace_until - time.monotonic())
        ready = connection.wait([self._wake_read, *(crew.waitables() if crew else ())], timeout)
        if self._wake_read in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake_read, 4096)
        if crew is not None:
            for _, event in crew.read(ready):
                if self._running is not None:
                    self._running._record(event)
            self._settle(crew)

    def _run_tasks(self) -> None:
        while self._tasks:
            self._tasks.popleft()()

    def _keep_crew(self) -> None:
        """Start ranks if there are none and somebody needs them."""
        if self.crew is not None or self.closed or not (self._eager or self._queue):
            return
        self._eager = False
        self._generation += 1
        try:
            crew = Crew(
                plan=self.plan, folder=self._folder, generation=self._generation, stop=lambda: self.closed
            )
        except (OSError, EOFError, RuntimeError) as problem:
            self._fail_next(f"{type(problem).__name__}: {problem}")
            return
        with self._lock:
            self.crew = crew
            if self.closed:
                crew.kill()

    def _dispatch(self) -> None:
        """Hand the next job to idle ranks."""
        with self._lock:
            crew = self.crew
            if crew is None or crew.killed or not crew.idle or self._running is not None or not self._queue:
                return
            job, call = self._queue.popleft()
            self._running = job
            event = job._enter("running")
        try:
            job.directory = rundir.create({"name": job.name, **self._describe})
        except (OSError, ValueError) as problem:
            self._conclude(job, "failed", error=problem)
            return
        self._numbers += 1
        self._started_s = time.monotonic()
        job._record(event)
        crew.send(
            {
                "number": self._numbers,
                "call": call,
                "directory": job.directory,
                "sys_path": tuple(path or str(Path.cwd()) for path in sys.path),
                "working_directory": str(Path.cwd()),
            }
        )

    def _settle(self, crew: Crew) -> None:
        """See whether the job has come to an end."""
        job = self._running
        if job is not None and job.state == "cancelling":
            self._drop_crew()
            self._conclude(job, "cancelled", error=JobCancelled(f"{job.name} was cancelled"))
        elif job is not None and crew.done:
            crew.rest()
            self._finish(job, [member.value for member in crew.members])
        elif crew.settled:
            self._fail(crew, job)

    def _finish(self, job: Job, values: list[bytes]) -> None:
        assert job.directory is not None
        seconds = time.monotonic() - self._started_s
        try:
            unpacked = tuple(payload.unpack_result(value) for value in values)
        except Exception as problem:  # whatever unpickling a user's class raises
            error = TypeError(f"what {job.name} returned cannot be read here: {problem}. Return plain data")
            self._conclude(job, "failed", error=error)
            return
        run = Run(
            name=job.name,
            ranks=job.ranks,
            backend=self.plan.backend,
            directory=job.directory,
            state="done",
            seconds=seconds,
            values=unpacked,
            description=self._describe,
        )
        self._conclude(job, "done", run=run)

    def _fail(self, crew: Crew, job: Job | None) -> None:
        """Name the rank that failed, stop the others and start again."""
        was_ready = all(member.state != "starting" for member in crew.members)
        evidence = crew.evidence
        self._drop_crew()
        directory = crew.folder if job is None else job.directory
        failure = judge(
            evidence,
            job="the start of the pool" if job is None else job.name,
            ranks=self.plan.ranks,
            directory=directory,
            oom=limits.oom_kills() > crew.oom_kills,
        )
        if job is not None:
            self._conclude(job, "failed", error=RankFailed(failure))
            return
        if was_ready:
            _log.warning("an idle rank has died (%s); the pool starts again", failure.cause)
            self._eager = True
        else:
            self._fail_next(failure)

    def _fail_next(self, failure: Failure | str) -> None:
        """Let the job that waits for the ranks know that they cannot start; the next job makes a new attempt."""
        with self._lock:
            if not self._queue:
                return
            job, _ = self._queue.popleft()
        if isinstance(failure, str):
            failure = Failure(
                job="the start of the pool", rank=0, ranks=self.plan.ranks, cause=failure, phase="starting"
            )
        job._deliver(job._end("failed", error=RankFailed(failure)))

    def _drop_crew(self) -> None:
        """Kill and bury the ranks; new ones start at once, since the next job may come any moment."""
        with self._lock:
            crew, self.crew = self.crew, None
        if crew is not None:
            self._eager = self._running is not None
            crew.kill()
            crew.reap()

    def _conclude(
        self, job: Job, state: str, *, run: Run | None = None, error: BaseException | None = None
    ) -> None:
        """End the running job, on disk first."""
        if job.directory is not None:
            with contextlib.suppress(OSError):  # a full disk must not stop the pool
                rundir.finish(
                    job.directory,
                    state=state,
                    seconds=time.monotonic() - self._started_s if run is None else run.seconds,
                    error="" if error is None else str(error),
                )
        with self._lock:
            self._running = None
            event = job._end(state, run=run, error=error)
        job._deliver(event)

    def _end(self, problem: BaseException | None) -> None:
        """Leave nothing behind: no rank, no file, nobody who waits."""
        reason = "its pool was closed" if problem is None else f"its pool has failed: {problem!r}"
        with self._lock:
            self.closed = True
            job, waiting = self._running, [item[0] for item in self._queue]
            self._queue.clear()
        self._drop_crew()
        if job is not None:
            self._conclude(job, "cancelled", error=JobCancelled(f"{job.name} was cancelled: {reason}"))
        for job in waiting:
            job._deliver(job._end("cancelled", error=JobCancelled(f"{job.name} was cancelled: {reason}")))
        with self._lock:
            self._ended = True
        self._run_tasks()
        with self._lock:
            os.close(self._wake_read)
            os.close(self._wake_write)
            self._wake_read = self._wake_write = -1
        shutil.rmtree(self._folder, ignore_errors=True)
