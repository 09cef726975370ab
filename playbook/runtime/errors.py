"""Errors of a job, in words: which rank, what happened to it, in which phase, and who only waited."""

import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What is known of a failed rank.

    `cause` is one line ("ValueError: odd", "killed by SIGSEGV"), `phase` what the rank said it was doing,
    `traceback` Python's (or faulthandler's after a signal), `log_tail` the end of what it printed, `hint`
    what might be behind it; `others` are the ranks that failed of themselves too, `victims` those that were
    only waiting for it.
    """

    job: str
    rank: int
    ranks: int
    cause: str
    phase: str
    traceback: str = ""
    log_tail: str = ""
    hint: str = ""
    others: tuple[int, ...] = ()
    victims: tuple[int, ...] = ()


class RankFailed(RuntimeError):  # noqa: N818 the name is part of the contract
    """A rank failed while it ran a job; the others were stopped and the pool started again.

    Attributes are those of `Failure`: `job`, `rank`, `ranks`, `cause`, `phase`, `traceback`, `log_tail`,
    `hint`, `others` and `victims`. What the ranks had reported until then is in the run directory,
    `job.directory`.
    """

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure)
        self.failure = failure
        self.job, self.rank, self.ranks = failure.job, failure.rank, failure.ranks
        self.cause, self.phase, self.hint = failure.cause, failure.phase, failure.hint
        self.traceback, self.log_tail = failure.traceback, failure.log_tail
        self.others, self.victims = failure.others, failure.victims

    def __str__(self) -> str:
        lines = [
            f"rank {self.rank} of {self.ranks} failed in {self.job}, phase {self.phase!r}: {self.cause}",
            *([self.hint] if self.hint else []),
            *([f"{_names(self.others)} failed as well."] if self.others else []),
            *([f"{_names(self.victims)} only waited for it."] if self.victims else []),
        ]
        if self.traceback:
            lines += ["", f"On rank {self.rank}:", self.traceback.rstrip()]
        elif self.log_tail:
            lines += ["", f"Last output of rank {self.rank}:", self.log_tail.rstrip()]
        return "\n".join(lines)


class JobCancelled(RuntimeError):  # noqa: N818 the name is part of the contract
    """The job was cancelled: by `Job.cancel`, by an interrupt, or because its pool was closed."""


class PoolClosed(ValueError):  # noqa: N818 the name is part of the contract
    """A job was submitted to a pool that is closed."""


def describe(problem: BaseException, *, phase: str) -> dict[str, Any]:
    """Tell what a kernel needs to know of an exception, as plain text: its class may be unknown there.

    The runtime's own frames are left out of the traceback.
    """
    report = traceback.TracebackException.from_exception(problem)
    ours = str(Path(__file__).parent)
    while report.stack and report.stack[0].filename.startswith(ours) and len(report.stack) > 1:
        report.stack.pop(0)
    return {
        "cause": f"{type(problem).__name__}: {problem}".removesuffix(": "),
        "kinds": [kind.__name__ for kind in type(problem).__mro__],
        "traceback": "".join(report.format()),
        "phase": phase,
        "time_s": time.monotonic(),
    }


def _names(ranks: tuple[int, ...]) -> str:
    if len(ranks) == 1:
        return f"Rank {ranks[0]}"
    return f"Ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"
