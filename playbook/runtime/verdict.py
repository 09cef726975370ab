"""Whose fault it was: from what is known of every rank to the one that failed first.

Evidence in falling order: killed by a signal or ended by itself; an exception of its own; a lost connection, which
is what a peer's failure looks like from the other side.
"""

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from playbook.runtime import rundir
from playbook.runtime.errors import Failure

_PEER_KINDS = frozenset({"ConnectionError", "DistNetworkError", "DistStoreError"})
_PEER_WORDS = re.compile(
    r"closed by peer|reset by peer|broken pipe|connection refused|remote process exited|ncclRemoteError"
    r"|socket closed|timed out waiting|peer closed|connection was likely closed|heartbeat monitor",
    re.IGNORECASE,
)
_FATAL = "Fatal Python error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What is known of a rank that did not finish its job.

    `exit_code` is negative for a signal and None if the process lives; `cause`, `kinds` and `traceback` describe its
    exception; `time_s` is on the monotonic clock.
    """

    rank: int
    time_s: float
    phase: str = ""
    exit_code: int | None = None
    cause: str = ""
    kinds: tuple[str, ...] = ()
    traceback: str = ""


def judge(
    evidence: Sequence[Evidence], *, job: str, ranks: int, directory: Path | None, oom: bool
) -> Failure:
    """Name the rank that failed first.

    Parameters
    ----------
    evidence
        At least one; what is known of the ranks that did not finish.
    job
        Name of the job.
    ranks
        World size.
    directory
        Run directory, whose logs and phases are read; None if the failure came before it was made.
    oom
        Whether the kernel's out-of-memory killer has run since the ranks started.
    """
    known = [_with_log(item, directory) for item in evidence]
    culprit, log = min(known, key=lambda pair: (_weight(*pair), pair[0].time_s, pair[0].rank))
    victims = tuple(sorted(set(range(ranks)) - {item.rank for item in evidence if not _only_waited(item)}))
    return Failure(
        job=job,
        rank=culprit.rank,
        ranks=ranks,
        cause=culprit.cause or _exit_words(culprit.exit_code),
        phase=culprit.phase,
        traceback=culprit.traceback or _fault_stack(log),
        log_tail=log,
        hint=_hint(culprit, oom),
        victims=tuple(rank for rank in victims if rank != culprit.rank),
    )


def last_phase(directory: Path, rank: int) -> str:
    """Phase that a rank wrote last; its file tells it even if the pipe did not."""
    try:
        records = rundir.read_records(rundir.records_path(directory, rank))
    except ValueError:
        return ""
    return next((r["name"] for r in reversed(records) if r["kind"] == "phase"), "")


def _with_log(item: Evidence, directory: Path | None) -> tuple[Evidence, str]:
    if directory is None:
        return item, ""
    log = rundir.read_tail(rundir.log_path(directory, item.rank))
    return replace(item, phase=item.phase or last_phase(directory, item.rank)), log


def _weight(item: Evidence, log: str) -> int:
    if item.exit_code is None:
        return 3 if _only_waited(item) else 2
    aborted_for_peer = item.exit_code == -signal.SIGABRT and _PEER_WORDS.search(log)
    return 3 if aborted_for_peer else 0 if item.exit_code < 0 else 1


def _only_waited(item: Evidence) -> bool:
    """Whether a rank's exception is what a peer's failure looks like from the other side."""
    if item.exit_code is not None:
        return False
    return bool(_PEER_KINDS.intersection(item.kinds) or _PEER_WORDS.search(item.cause))


def _exit_words(exit_code: int | None) -> str:
    if exit_code is None:
        return "stopped without a word"
    if exit_code >= 0:
        return f"the process ended with exit code {exit_code} before its job was done"
    try:
        return f"killed by {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"killed by signal {-exit_code}"


def _hint(culprit: Evidence, oom: bool) -> str:
    if culprit.exit_code != -signal.SIGKILL:
        return ""
    if oom:
        return "The system's out-of-memory killer has run here since: use fewer ranks or a smaller model."
    return "Something outside killed it: often the out-of-memory killer. Use fewer ranks or a smaller model if so."


def _fault_stack(log: str) -> str:
    """Stack that faulthandler left in the log, if it did."""
    at = log.rfind(_FATAL)
    return log[at:] if at >= 0 else ""
