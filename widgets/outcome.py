"""How a run ended, as the state that the front end draws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from playbook.pictures.failure import failure_words
from playbook.runtime.errors import JobCancelled, RankFailed


def outcome(error: BaseException | None, fault: str, remedies: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Words of a run's end.

    Parameters
    ----------
    error
        What `Job.result` raised; None if it returned.
    fault
        What went wrong here while the run was drawn; empty if nothing.
    remedies
        Changes of controls that would help, each with `words` and `set`; the first two are offered.
    """
    if fault:
        return _unread(fault)
    if error is None:
        return {"note": ""}
    if isinstance(error, JobCancelled):
        return {
            "word": "cancelled",
            "note": "Cancelled; what was measured is kept. Run again whenever you like.",
        }
    if isinstance(error, RankFailed):
        failure = failure_words(error)
        headline = failure.pop("headline")
        return {
            "state": "failed",
            "word": "failed",
            "headline": headline,
            "failure": {**failure, "remedies": list(remedies[:2])},
        }
    return _unread(str(error))


def _unread(words: str) -> dict[str, Any]:
    failure = {"what": "The run could not be read", "why": words, "remedies": []}
    return {"state": "failed", "word": "failed", "failure": failure}
