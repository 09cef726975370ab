"""The thread that owns a pool's ranks: it starts them, hands them jobs, drains their pipes and buries them.

Ranks are started from this thread to keep the kernel free, and because a spawned rank's death signal is tied
to the thread that started it.
"""

import contextlib
import logging
import shutil
import threading
import time
from collections.abc import Mapping
from multiprocessing import connection
from typing import Any

from playbook.runtime import environment, limits, payload, rundir, scratch
from playbook.runtime.crew import Crew
from playbook.runtime.desk import Desk
from playbook.runtime.errors import Failure, JobCancelled, RankFailed
from playbook.runtime.job import Job
from playbook.runtime.plan import Plan
from playbook.runtime.run import Run
from playbook.runtime.verdict import judge

_START = "the start of the pool"
_log = logging.getLogger(__name__)


class Pump(threading.Thread):
    """Runs the jobs of a desk on ranks, until the desk is closed.

    Parameters
    ----------
    desk
        Where jobs come in.
    plan
        Ranks, backend and how to start them.
    description
        What is written into each run.json besides the job's name.
    """

    def __init__(self, *, desk: Desk, plan: Plan, description: Mapping[str, Any]) -> None:
        super().__init__(name="playbook-pump", daemon=True)
        self._desk = desk
        self._plan = plan
        self._description = description
        self._folder = scratch.make_folder()
        self._generation = 0
        self._start_now = True

    def run(self) -> None:
        """Work until the desk is closed, then leave nothing behind: no rank, no file, nobody who waits."""
        reason = "its pool was closed"
        try:
            self._tidy()
            while not self._desk.closed:
                self._turn()
        except BaseException as problem:  # nobody may wait for ever for a thread that has died
            reason = f"its pool has failed: {problem!r}"
            _log.exception("the thread of %d ranks has failed", self._plan.ranks)
        finally:
            self._drop_crew(again=False)
            self._desk.clear(reason)
            self._desk.mail.close()
            shutil.rmtree(self._folder, ignore_errors=True)
            self._desk.ended.set()

    def _tidy(self) -> None:
        scratch.sweep()
        if environment.chosen_runs_directory() is None:
            with contextlib.suppress(OSError):
                rundir.prune(rundir.runs_directory())

    def _turn(self) -> None:
        """Do what can be done, then wait for news and take it in."""
        self._desk.mail.take()
        if self._desk.closed:  # looked at after the bell was taken, so that none is missed
            return
        self._keep_crew()
        self._dispatch()
        crew = self._desk.crew
        sources = [self._desk.mail.waitable, *(crew.waitables() if crew is not None else ())]
        ready = connection.wait(sources, None if crew is None else crew.patience_s)
        if crew is None:
            return
        for event in crew.read(ready):
            if self._desk.running is not None:
                self._desk.running._record(event)
        self._settle(crew)

    def _keep_crew(self) -> None:
        """Start ranks if there are none and somebody needs them."""
        desk = self._desk
        if desk.crew is not None or desk.closed or not (self._start_now or desk.waiting):
            return
        self._start_now = False
        self._generation += 1
        try:
            crew = Crew(
                plan=self._plan, folder=self._folder, generation=self._generation, stop=lambda: desk.closed
            )
        except (OSError, EOFError, RuntimeError) as problem:
            cause = f"{type(problem).__name__}: {problem}"
            failure = Failure(job=_START, rank=0, ranks=self._plan.ranks, cause=cause, phase="starting")
            desk.refuse_next(RankFailed(failure))
            return
        desk.install(crew)

    def _dispatch(self) -> None:
        """Hand the next job to idle ranks."""
        started = self._desk.begin()
        if started is None or self._desk.crew is None:
            return
        job, call = started
        try:
            job.directory = rundir.create({"name": job.name, **self._description})
        except (OSError, ValueError) as problem:
            self._desk.conclude("failed", error=problem)
            return
        self._desk.crew.send(call, job.directory)

    def _settle(self, crew: Crew) -> None:
        """See whether the job, or the crew, has come to an end."""
        job = self._desk.running
        if crew.killed:
            self._drop_crew(again=True)
            if job is not None and not self._desk.closed:
                self._desk.conclude("cancelled", error=JobCancelled(f"{job.name} was cancelled"))
        elif job is not None and crew.done:
            self._finish(job, [member.value for member in crew.members])
            crew.rest()
        elif crew.settled:
            self._fail(crew, job)

    def _finish(self, job: Job, values: list[bytes]) -> None:
        """End a job whose ranks have all returned."""
        assert job.directory is not None
        seconds = time.monotonic() - self._desk.started_s
        try:
            unpacked = tuple(payload.unpack_result(value) for value in values)
        except Exception as problem:  # whatever unpickling a user's class raises
            error = TypeError(f"what {job.name} returned cannot be read here: {problem}. Return plain data")
            self._desk.conclude("failed", error=error)
            return
        run = Run(
            name=job.name,
            ranks=job.ranks,
            backend=self._plan.backend,
            directory=job.directory,
            state="done",
            seconds=seconds,
            values=unpacked,
            description=self._description,
        )
        self._desk.conclude("done", run=run)

    def _fail(self, crew: Crew, job: Job | None) -> None:
        """Name the rank that failed, stop the others and start again."""
        finished = crew.finished
        self._drop_crew(again=crew.came_up)
        failure = judge(
            crew.evidence,
            job=_START if job is None else job.name,
            ranks=self._plan.ranks,
            finished=finished,
            directory=self._folder if job is None else job.directory,
            oom=limits.oom_kills() > crew.oom_kills,
        )
        if job is not None:
            self._desk.conclude("failed", error=RankFailed(failure))
        elif crew.came_up:
            _log.warning("rank %d, idle, was %s; the pool starts again", failure.rank, failure.cause)
        else:
            self._desk.refuse_next(RankFailed(failure))

    def _drop_crew(self, *, again: bool) -> None:
        """Kill and bury the ranks; with `again`, new ones start at once, not only when a job comes."""
        crew = self._desk.install(None)
        self._start_now = again
        if crew is not None:
            crew.kill()
            crew.reap()
