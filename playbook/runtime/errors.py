"""Errors of a job, in words: which rank, what happened to it, in which phase, and who only waited."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What is known of a failed rank.

    `cause` is one line ("ValueError: odd", "killed by SIGSEGV"), `phase` what the rank said it was doing,
    `traceback` Python's (or faulthandler's after a signal), `log_tail` the end of what it printed, `victims`
    the ranks that were only waiting for it.
    """

    job: str
    rank: int
    ranks: int
    cause: str
    phase: str
    traceback: str = ""
    log_tail: str = ""
    hint: str = ""
    victims: tuple[int, ...] = ()


class RankFailed(RuntimeError):
    """A rank failed while it ran a job; the others were stopped and the pool started again.

    Attributes are those of `Failure`: `job`, `rank`, `ranks`, `cause`, `phase`, `traceback`, `log_tail`,
    `hint` and `victims`.
    """

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure)
        self.failure = failure
        self.job, self.rank, self.ranks = failure.job, failure.rank, failure.ranks
        self.cause, self.phase, self.hint = failure.cause, failure.phase, failure.hint
        self.traceback, self.log_tail, self.victims = failure.traceback, failure.log_tail, failure.victims

    def __str__(self) -> str:
        lines = [f"rank {self.rank} of {self.ranks} failed in {self.job}, phase {self.phase!r}: {self.cause}"]
        if self.hint:
            lines.append(self.hint)
        if self.victims:
            lines.append(f"{_names(self.victims)} only waiting for it.")
        if self.traceback:
            lines += ["", f"On rank {self.rank}:", self.traceback.rstrip()]
        elif self.log_tail:
            lines += ["", f"Last output of rank {self.rank}:", self.log_tail.rstrip()]
        return "\n".join(lines)


class JobCancelled(RuntimeError):
    """The job was cancelled, by `Job.cancel`, by an interrupt, or because its pool was closed."""


class PoolClosed(ValueError):
    """A job was submitted to a pool that is closed."""


def _names(ranks: tuple[int, ...]) -> str:
    if len(ranks) == 1:
        return f"Rank {ranks[0]} was"
    return f"Ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]} were"
