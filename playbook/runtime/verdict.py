"""Whose fault it was: from what is known of every rank to the one that failed first.

Evidence in falling order: killed by a signal or ended by itself; an exception of its own; a lost connection,
which is what a peer's failure looks like from the other side.
"""

import re
import signal
from collections.abc import Collection, Sequence
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
_WAITED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What is known of a rank that did not finish its job.

    `exit_code` is negative for a signal and None if the process lives; `cause`, `kinds` (names of its
    classes) and `traceback` describe its exception; `time_s` is on the monotonic clock.
    """

    rank: int
    time_s: float
    phase: str = ""
    exit_code: int | None = None
    cause: str = ""
    kinds: tuple[str, ...] = ()
    traceback: str = ""


def judge(
    evidence: Sequence[Evidence],
    *,
    job: str,
    ranks: int,
    finished: Collection[int] = (),
    directory: Path | None = None,
    oom: bool = False,
) -> Failure:
    """Name the rank that failed first.

    Parameters
    ----------
    evidence
        At least one; what is known of the ranks that failed.
    job
        Name of the job.
    ranks
        World size.
    finished
        Ranks that had returned already, so that they were not waiting.
    directory
        Folder with the ranks' logs and records; None if there are none yet.
    oom
        Whether the system's out-of-memory killer has run since the ranks started.
    """
    known = [_with_files(item, directory) for item in evidence]
    culprit, log = min(known, key=lambda pair: (_weight(*pair), pair[0].time_s, pair[0].rank))
    guilty = {item.rank for item, text in known if _weight(item, text) < _WAITED}
    return Failure(
        job=job,
        rank=culprit.rank,
        ranks=ranks,
        cause=culprit.cause or _exit_words(culprit.exit_code),
        phase=culprit.phase,
        traceback=culprit.traceback or _fault_stack(log),
        log_tail=log,
        hint=_hint(culprit, oom),
        others=tuple(sorted(guilty - {culprit.rank})),
        victims=tuple(sorted(set(range(ranks)) - guilty - set(finished) - {culprit.rank})),
    )


def is_peers_fault(cause: str, kinds: Collection[str] = ()) -> bool:
    """Whether an exception, by its text and the names of its classes, only tells that a peer has gone."""
    return bool(_PEER_KINDS.intersection(kinds) or _PEER_WORDS.search(cause))


def only_waited(item: Evidence) -> bool:
    """Whether a rank lives and has only told that a peer has gone."""
    return item.exit_code is None and is_peers_fault(item.cause, item.kinds)


def _with_files(item: Evidence, directory: Path | None) -> tuple[Evidence, str]:
    """Evidence with the last phase that the rank wrote, and the end of its log."""
    if directory is None:
        return item, ""
    phase = (
        item.phase if item.exit_code is None else rundir.read_last_phase(directory, item.rank) or item.phase
    )
    return replace(item, phase=phase), rundir.read_tail(rundir.log_path(directory, item.rank))


def _weight(item: Evidence, log: str) -> int:
    """0 for a signal, 1 for an exit, 2 for an exception of its own, 3 for having waited for a peer."""
    if item.exit_code is None:
        return _WAITED if only_waited(item) else 2
    if item.exit_code == -signal.SIGABRT and _PEER_WORDS.search(log):
        return _WAITED  # NCCL's watchdog aborts the process of a rank that has lost its peer
    return 0 if item.exit_code < 0 else 1


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
        return "The system's out-of-memory killer has run since: use fewer ranks or a smaller model."
    return "It was killed from outside, often for lack of memory: fewer ranks or a smaller model need less."


def _fault_stack(log: str) -> str:
    """Stack that faulthandler left in the log, if it did."""
    at = log.rfind(_FATAL)
    return log[at:] if at >= 0 else ""
