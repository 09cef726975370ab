"""The memory walk of a recorded step: bytes by term after every operation, and the peak."""

from dataclasses import dataclass

import numpy as np

from playbook.program.walk import block_name
from playbook.runtime.owners import Place
from playbook.runtime.record import Record
from playbook.runtime.trace_memory import BEFORE, Holding
from playbook.runtime.traced_terms import term_of
from playbook.tables import TERMS


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedWalk:
    """Bytes by term at every operation of a step.

    Parameters
    ----------
    levels
        Events × terms, in bytes; columns as in `TERMS`. Births count from their event on, deaths after it.
    places
        Where each event belongs.
    """

    levels: np.ndarray
    places: tuple[Place | None, ...]

    @property
    def peak_event(self) -> int:
        """Event with the most bytes, the first of equals."""
        return int(self.levels.sum(axis=1).argmax())

    @property
    def peak_bytes(self) -> int:
        """Most bytes at any event."""
        return int(self.levels.sum(axis=1).max())

    @property
    def terms(self) -> dict[str, int]:
        """Bytes of each term at the peak; they add up to it."""
        return {
            term: int(size) for term, size in zip(TERMS, self.levels[self.peak_event], strict=True) if size
        }

    @property
    def instant(self) -> str:
        """Phase and block of the peak, as in "B layers.2"."""
        place = self.places[self.peak_event]
        return "" if place is None else f"{place.phase} {block_name(place.owner)}"

    def highest(self, events: np.ndarray) -> np.ndarray:
        """Levels at the highest moment from each of several events to the next; the first starts at 0."""
        totals = self.levels.sum(axis=1)
        edges = [0, *events[1:].tolist(), len(totals)]
        picked = [a + int(totals[a:b].argmax()) for a, b in zip(edges[:-1], edges[1:], strict=True)]
        return self.levels[picked]


def walk(record: Record) -> TracedWalk:
    """Lay the ledger of a record out over its events.

    Raises
    ------
    ValueError
        If the step was recorded without a ledger.
    """
    if record.ledger is None:
        raise ValueError("the step was recorded without a ledger; give record_step(..., ledger=Ledger())")
    return TracedWalk(levels=_levels(record.ledger.holdings, record.places), places=record.places)


def _levels(holdings: list[Holding], places: tuple[Place | None, ...]) -> np.ndarray:
    """Sum births and deaths into levels; what was there before counts from the first event on."""
    events = len(places)
    change = np.zeros((events + 2, len(TERMS)), dtype=np.int64)
    for held in holdings:
        column = TERMS.index(term_of(held, places))
        change[0 if held.birth == BEFORE else held.birth, column] += held.size_bytes
        if held.death is not None:
            change[held.death + 1, column] -= held.size_bytes
    return change.cumsum(axis=0)[:events]
