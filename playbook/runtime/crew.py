"""One generation of ranks: started together, killed together."""

import contextlib
import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from playbook.runtime import environment, limits
from playbook.runtime.launch import RankProcess, start_rank
from playbook.runtime.plan import Plan
from playbook.runtime.surroundings import Surroundings
from playbook.runtime.verdict import Evidence, only_waited
from playbook.runtime.worker import Order, Settings

Event = dict[str, Any]

GRACE_S = 0.5
"""After the first sign of a failure, how long to wait for better evidence from the other ranks."""

CULPRIT_GRACE_S = 5.0
"""The same while all that is heard is that a peer has gone: on a busy machine its end is noticed late."""

_BURIAL_S = 2.0


@dataclass(slots=True, kw_only=True)
class Member:
    """One rank as the kernel sees it. `state` is "starting", "idle", "busy", "done", "failed" or "dead"."""

    rank: int
    process: RankProcess
    state: str = "starting"
    ready: bool = False
    heard: bool = True
    value: bytes = b""
    groups: int = 1
    phase: str = ""
    last_event: str = ""
    evidence: Evidence | None = None


class Crew:
    """The ranks of one generation.

    The pump's thread makes it, reads from it and reaps it; any thread may kill it.

    Parameters
    ----------
    plan
        What the pool asked for.
    folder
        Private folder for rendezvous files and the logs outside jobs.
    generation
        Number of this generation; its rendezvous file is named after it.
    stop
        Tells whether the pool has been closed meanwhile, so that no more ranks are started.
    """

    def __init__(self, *, plan: Plan, folder: Path, generation: int, stop: Callable[[], bool]) -> None:
        self.plan = plan
        self.folder = folder
        self.generation = generation
        self.members: list[Member] = []
        self.killed = False
        self.oom_kills = limits.oom_kills()
        self.grace_until: float | None = None
        self._named = False
        self._groups = 0
        try:
            for rank in range(plan.ranks):
                if stop() or self.killed:
                    break
                self.members.append(Member(rank=rank, process=start_rank(self._settings(rank))))
        except BaseException:
            self.kill()
            self.reap()
            raise

    @property
    def idle(self) -> bool:
        """Whether every rank waits for a job."""
        return self._all("idle")

    @property
    def done(self) -> bool:
        """Whether every rank has returned."""
        return self._all("done")

    @property
    def came_up(self) -> bool:
        """Whether every rank has been ready for a job once."""
        return len(self.members) == self.plan.ranks and all(member.ready for member in self.members)

    @property
    def evidence(self) -> list[Evidence]:
        """What is known of the ranks that failed or died."""
        return [member.evidence for member in self.members if member.evidence is not None]

    @property
    def finished(self) -> list[int]:
        """Ranks that have returned."""
        return [member.rank for member in self.members if member.state == "done"]

    @property
    def patience_s(self) -> float | None:
        """How long to wait for news, in seconds; None while nothing is wrong."""
        return None if self.grace_until is None else max(0.0, self.grace_until - time.monotonic())

    @property
    def settled(self) -> bool:
        """Whether there is a failure and nothing more to learn about it."""
        if self.grace_until is None:
            return False
        running = any(member.state in ("starting", "busy") for member in self.members)
        return not running or time.monotonic() >= self.grace_until

    def send(self, call: bytes, directory: Path) -> None:
        """Give every rank a job: a packed function, and the run directory that it reports to."""
        stale = any(member.groups != 1 for member in self.members)
        if stale:  # groups that a job has made keep their sockets open, and some jobs close the default one
            self._groups += 1
        order = Order(
            call=call,
            directory=directory,
            surroundings=Surroundings.here(),
            store=self._store() if stale else None,
        )
        data = pickle.dumps(order)
        for member in self.members:
            member.state, member.value, member.phase = "busy", b"", ""
            with contextlib.suppress(OSError):  # it has died this moment; its sentinel will tell
                member.process.connection.send_bytes(data)

    def rest(self) -> None:
        """Note that the job is over and every rank waits for the next."""
        for member in self.members:
            member.state = "idle"

    def waitables(self) -> list[Connection | int]:
        """Objects that become ready when there is something to read."""
        heard = [member for member in self.members if member.heard]
        alive = [member for member in self.members if member.state != "dead"]
        return [m.process.connection for m in heard] + [m.process.process.sentinel for m in alive]

    def read(self, ready: Sequence[object]) -> Iterator[Event]:
        """Take in what the ranks have sent; events are handed on as they are read."""
        for member in self.members:
            if member.heard and member.process.connection in ready:
                yield from self._hear(member)
            if member.state != "dead" and member.process.process.sentinel in ready:
                yield from self._bury(member)

    def kill(self) -> None:
        """Kill every rank by its process id."""
        self.killed = True
        for member in self.members:
            member.process.kill()

    def reap(self) -> None:
        """Wait for the killed ranks and close their pipes."""
        for member in self.members:
            member.process.reap()

    def _all(self, state: str) -> bool:
        return len(self.members) == self.plan.ranks and all(m.state == state for m in self.members)

    def _settings(self, rank: int) -> Settings:
        plan = self.plan
        return Settings(
            rank=rank,
            ranks=plan.ranks,
            backend=plan.backend,
            device=plan.devices[rank],
            threads=plan.threads,
            environment=environment.rank_environment(threads=plan.threads, loopback=True),
            store=self._store(),
            log=self.folder / f"rank{rank}.log",
            method=plan.method,
        )

    def _store(self) -> Path:
        return self.folder / f"meet-{self.generation}-{self._groups}"

    def _hear(self, member: Member) -> Iterator[Event]:
        """Read what is there, one message; at the end of the pipe stop listening."""
        try:
            kind, content = pickle.loads(member.process.connection.recv_bytes())
        except (EOFError, OSError):
            member.heard = False
            return
        if kind == "events":
            for event in content:
                member.last_event = event["name"]
                if event["kind"] == "phase":
                    member.phase = event["name"]
                yield event
        elif kind == "ready":
            member.state, member.ready = "idle", True
        elif kind == "done":
            member.state, member.value, member.groups = "done", content["value"], content["groups"]
        elif kind == "error":
            member.state = "failed"
            fields = {name: content[name] for name in ("time_s", "phase", "cause", "traceback")}
            self._blame(member, Evidence(rank=member.rank, kinds=tuple(content["kinds"]), **fields))

    def _bury(self, member: Member) -> Iterator[Event]:
        """Take note of a rank's death, after reading what it still had to say."""
        while member.heard and member.process.connection.poll():
            yield from self._hear(member)
        process = member.process.process
        process.join(_BURIAL_S)
        if process.is_alive():  # it has closed its descriptors but goes on
            member.process.kill()
            process.join(_BURIAL_S)
        phase = "starting" if not member.ready else member.phase or "waiting for a job"
        member.state = "dead"
        if member.evidence is None and not self.killed:
            code = process.exitcode
            self._blame(
                member, Evidence(rank=member.rank, time_s=time.monotonic(), phase=phase, exit_code=code)
            )

    def _blame(self, member: Member, evidence: Evidence) -> None:
        member.evidence = evidence
        now = time.monotonic()
        if all(only_waited(item) for item in self.evidence):
            self.grace_until = self.grace_until or now + CULPRIT_GRACE_S
        elif not self._named:
            self._named, self.grace_until = True, now + GRACE_S
