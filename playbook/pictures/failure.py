"""A failed run in words: who failed, in what, who only waited, and the log to read."""

from __future__ import annotations

from typing import Any, Protocol

TAIL_LINES = 40


class Failed(Protocol):
    """What is known of a failed rank; `playbook.runtime.errors.RankFailed` has it all."""

    rank: int
    ranks: int
    cause: str
    phase: str
    traceback: str
    log_tail: str
    hint: str
    victims: tuple[int, ...]


def failure_words(failed: Failed) -> dict[str, Any]:
    """Title, cause and log of a failed run.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> rank = SimpleNamespace(rank=3, ranks=4, cause="killed by SIGKILL", phase="backward of layer 17",
    ...     traceback="", log_tail="", hint="", victims=(0, 1, 2))
    >>> words = failure_words(rank)
    >>> words["what"], words["why"]
    ('Rank 3 of 4: killed by SIGKILL during backward of layer 17', 'Ranks 0, 1 and 2 only waited for it.')
    """
    phase = f" during {failed.phase}" if failed.phase else ""
    log = failed.traceback or failed.log_tail
    lines = log.rstrip().splitlines()[-TAIL_LINES:]
    return {
        "headline": [
            "Stopped:",
            f"rank {failed.rank} of {failed.ranks} failed; what was measured before is kept.",
        ],
        "rank": failed.rank,
        "mark": failed.cause,
        "what": f"Rank {failed.rank} of {failed.ranks}: {failed.cause}{phase}",
        "why": " ".join(part for part in (failed.hint, waited(failed.victims)) if part),
        "log": "\n".join(lines),
        "log_title": f"Traceback of rank {failed.rank}"
        if failed.traceback
        else f"Last {len(lines)} lines of rank {failed.rank}",
    }


def waited(victims: tuple[int, ...]) -> str:
    """Which ranks only waited for the one that failed."""
    if not victims:
        return ""
    if len(victims) == 1:
        return f"Rank {victims[0]} only waited for it."
    listed = ", ".join(str(rank) for rank in victims[:-1])
    return f"Ranks {listed} and {victims[-1]} only waited for it."
