"""One generation of ranks: started together, killed together."""

import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from playbook.runtime import environment, limits
from playbook.runtime.launch import RankProcess, start_rank
from playbook.runtime.verdict import Evidence
from playbook.runtime.worker import Order, Settings

GRACE_S = 0.5
"""After the first sign of a failure, how long to wait for better evidence from the other ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What every generation of a pool has in common.

    `devices` names each rank's device, `method` the start method, `threads` the compute threads of a rank.
    """

    ranks: int
    backend: str
    method: str
    threads: int
    devices: tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class Member:
    """One rank as the kernel sees it. `state` is "starting", "idle", "busy", "done", "failed" or "dead"."""

    rank: int
    process: RankProcess
    state: str = "starting"
    heard: bool = True
    value: bytes = b""
    groups: int = 1
    last_event: dict[str, Any] = field(default_factory=dict)
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
    def evidence(self) -> list[Evidence]:
        """What is known of the ranks that failed or died."""
        return [member.evidence for member in self.members if member.evidence is not None]

    @property
    def settled(self) -> bool:
        """Whether there is a failure and nothing more to learn about it."""
        if self.grace_until is None:
            return False
        running = any(member.state in ("starting", "busy") for member in self.members)
        return not running or time.monotonic() >= self.grace_until

    @property
    def dead(self) -> bool:
        """Whether no rank is alive."""
        return self._all("dead")

    def send(self, order: dict[str, Any]) -> None:
        """Give every rank a job; `order` holds the fields of `Order` but the rendezvous file."""
        stale = any(member.groups != 1 for member in self.members)
        if (
            stale
        ):  # groups that a job has made and left keep sockets open, and some jobs destroy the default one
            self._groups += 1
        data = pickle.dumps(Order(store=self._store() if stale else None, **order))
        for member in self.members:
            member.state, member.value, member.last_event = "busy", b"", {}
            try:
                member.process.connection.send_bytes(data)
            except OSError:  # it has died this moment; its sentinel will tell
                continue

    def rest(self) -> None:
        """Note that the job is over and every rank waits for the next."""
        for member in self.members:
            member.state = "idle"

    def waitables(self) -> list[Connection | int]:
        """Objects that become ready when there is something to read."""
        heard = [member for member in self.members if member.heard]
        alive = [member for member in self.members if member.state != "dead"]
        return [m.process.connection for m in heard] + [m.process.process.sentinel for m in alive]

    def read(self, ready: Sequence[object]) -> Iterator[tuple[Member, dict[str, Any]]]:
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

    def _hear(self, member: Member) -> Iterator[tuple[Member, dict[str, Any]]]:
        """Read what is there, one message; at the end of the pipe stop listening."""
        try:
            kind, content = pickle.loads(member.process.connection.recv_bytes())
        except (EOFError, OSError):
            member.heard = False
            return
        if kind == "events":
            for event in content:
                member.last_event = event
                yield member, event
        elif kind == "ready":
            member.state = "idle"
        elif kind == "done":
            member.state, member.value, member.groups = "done", content["value"], content["groups"]
        elif kind == "error":
            member.state = "failed"
            self._blame(
                member,
                Evidence(
                    rank=member.rank,
                    time_s=content["time_s"],
                    phase=content["phase"],
                    cause=content["cause"],
                    kinds=tuple(content["kinds"]),
                    traceback=content["traceback"],
                ),
            )

    def _bury(self, member: Member) -> Iterator[tuple[Member, dict[str, Any]]]:
        """Take note of a rank's death, after reading what it still had to say."""
        while member.heard and member.process.connection.poll():
            yield from self._hear(member)
        member.process.process.join()
        before, member.state = member.state, "dead"
        if member.evidence is None and not self.killed:
            phase = "starting" if before == "starting" else ""
            code = member.process.process.exitcode
            self._blame(
                member, Evidence(rank=member.rank, time_s=time.monotonic(), phase=phase, exit_code=code)
            )

    def _blame(self, member: Member, evidence: Evidence) -> None:
        member.evidence = evidence
        if self.grace_until is None:
            self.grace_until = time.monotonic() + GRACE_S
