"""Segment summaries: what a whole run of forward or backward does to memory, in a few numbers that compose
exactly.

A run changes each term by so much, and peaks so high over its entry. (d₁, p₁)·(d₂, p₂) = (d₁ + d₂, max(p₁,
d₁ + p₂)): so all ranks of a pipeline are walked action by action, with peaks that are exact to the
operation.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from playbook.program.lay import Stage
from playbook.program.order import ONCE, SEGMENTS, STATE, STEP, Ints, Run, flags, runs_now
from playbook.program.walk import terms_of
from playbook.tables import TERMS

Levels = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Summary:
    """Memory of a stretch of rows over the level at its entry.

    Parameters
    ----------
    change
        Bytes by term from entry to exit.
    peak
        Most bytes over entry.
    at_peak
        Bytes by term over entry at that row.
    """

    change: Levels
    peak: float
    at_peak: Levels

    def then(self, other: "Summary") -> "Summary":
        """The summary of this stretch and another after it."""
        change, high = self.change + other.change, float(self.change.sum()) + other.peak
        if self.peak >= high:
            return Summary(change=change, peak=self.peak, at_peak=self.at_peak)
        return Summary(change=change, peak=high, at_peak=self.change + other.at_peak)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RankMemory:
    """Memory of one rank's step at the resolution of actions.

    Parameters
    ----------
    peak_bytes, terms
        The peak and what it is made of.
    run
        Index in the order list of the run that peaks; its length for the optimizer step.
    before, peaks
        Bytes at entry of each run, and its peak.
    """

    peak_bytes: int
    terms: dict[str, int]
    run: int
    before: Levels
    peaks: Levels


def summarise(stage: Stage, segment: str, first: bool = True, last: bool = True) -> Summary:
    """Summarise one run of a stage's segment in a micro-batch that is or is not the first, the last."""
    tensors, code = stage.tensors, SEGMENTS.index(segment)
    rows = stage.rows[segment]
    kept = np.flatnonzero(runs_now(rows.when, first, last)) if segment != "O" else np.arange(len(rows))
    step = tensors.when == ONCE
    now = runs_now(tensors.when, first, last) & ~step
    stays = tensors.birth_segment == STATE
    born = (tensors.birth_segment == code) & (now | (step & first))
    gone = (tensors.death_segment == code) & (now | (step & last)) & ~stays
    starts = np.searchsorted(kept, tensors.birth_row[born], side="left")
    ends = np.searchsorted(kept, tensors.death_row[gone], side="right") - 1
    births = np.clip(starts, 0, max(len(kept) - 1, 0))
    deaths = np.clip(ends, 0, max(len(kept) - 1, 0))
    return of_events(
        max(len(kept), 1),
        (births, tensors.term[born], tensors.size[born]),
        (deaths, tensors.term[gone], tensors.size[gone]),
    )


def of_events(rows: int, born: tuple[Ints, Ints, Ints], gone: tuple[Ints, Ints, Ints]) -> Summary:
    """Summarise so many rows from (row, term, bytes) of births and deaths."""
    terms, size = len(TERMS), (rows + 1) * len(TERMS)
    up = np.bincount(born[0] * terms + born[1], weights=born[2], minlength=size).reshape(-1, terms)
    down = np.bincount((gone[0] + 1) * terms + gone[1], weights=gone[2], minlength=size).reshape(-1, terms)
    levels = np.cumsum(up - down, axis=0)
    totals = levels[:-1].sum(axis=1)
    row = int(np.argmax(totals))
    return Summary(change=levels[-1], peak=float(totals[row]), at_peak=levels[row])


def state_of(stage: Stage) -> Levels:
    """Bytes by term that are there before the step."""
    tensors = stage.tensors
    mine = tensors.birth_segment == STATE
    return np.bincount(tensors.term[mine], weights=tensors.size[mine], minlength=len(TERMS)).astype(float)


def optimizer_step(stages: Sequence[Stage]) -> Summary:
    """Summarise the optimizer segment of all stages of a rank; the optimizer itself is one row."""
    born, gone, row = [], [], 1
    for stage in stages:
        tensors = stage.tensors
        for code, place, events in (
            (tensors.birth_segment, tensors.birth_row, born),
            (tensors.death_segment, tensors.death_row, gone),
        ):
            mine = (code == STEP) & (tensors.birth_segment != STATE)
            at = np.where(place[mine] == 0, 0, place[mine] + row - 1)
            events.append((at, tensors.term[mine], tensors.size[mine]))
        row += len(stage.rows["O"]) - 1
    births, deaths = (
        tuple(np.concatenate(column) for column in zip(*part, strict=True)) for part in (born, gone)
    )
    return of_events(row, births, deaths)  # type: ignore[arg-type]


Summaries = dict[tuple[int, str, bool, bool], Summary]


def rank_memory(
    stages: Mapping[int, Stage], order: Sequence[Run], known: Summaries | None = None
) -> RankMemory:
    """Walk one rank run by run.

    Parameters
    ----------
    stages, order
        As for `assemble`; stages that are equal in all but their number may be one object.
    known
        Summaries made so far, by the stage's identity; filled here, so that ranks share them.
    """
    known = {} if known is None else known
    parts = []
    for run, (first, last) in zip(order, flags(order), strict=True):
        key = (id(stages[run.stage]), run.segment, first, last)
        if key not in known:
            known[key] = summarise(stages[run.stage], run.segment, first, last)
        parts.append(known[key])
    parts.append(optimizer_step(list(stages.values())))
    entry = sum((state_of(stage) for stage in stages.values()), np.zeros(len(TERMS)))
    change = np.array([part.change for part in parts])
    before = entry + np.concatenate((np.zeros((1, len(TERMS))), np.cumsum(change, axis=0)[:-1]))
    peaks = before.sum(axis=1) + np.array([part.peak for part in parts])
    top = int(np.argmax(peaks))
    return RankMemory(
        peak_bytes=int(peaks[top]),
        terms=terms_of(before[top] + parts[top].at_peak),
        run=top,
        before=before.sum(axis=1),
        peaks=peaks,
    )
