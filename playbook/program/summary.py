"""Segment summaries: what a whole run of forward, of backward or of a part of it does to memory, in a few
numbers that compose exactly.

A run changes each term by so much, and peaks so high over its entry. (d₁, p₁)·(d₂, p₂) = (d₁ + d₂, max(p₁,
d₁ + p₂)): so all ranks of a pipeline are walked action by action, with peaks that are exact to the
operation.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from playbook.program.lay import Stage, Tensors, widest
from playbook.program.order import (
    ONCE,
    ONLY,
    RUNS,
    SEGMENTS,
    SHARDED,
    STATE,
    STEP,
    WEIGHT,
    Columns,
    Flags,
    Ints,
    Run,
    Turn,
    runs_in_turn,
)
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


def summarise(stage: Stage, segment: str, turn: Turn = ONLY) -> Summary:
    """Summarise one run of a stage's segment in a micro-batch that is or is not the first, the last."""
    tensors, code = stage.tensors_of(segment), SEGMENTS.index(segment)
    kept = stage.kept(segment, turn)
    apart = segment == "B" and not turn.alike
    births, deaths = (
        events(tensors, ends, kept, code, turn, stage.aligned if apart else None)
        for ends in ("birth", "death")
    )
    return of_events(max(len(kept), 1), births, deaths)


def events(
    tensors: Tensors, end: str, kept: Ints, code: int, turn: Turn, parts: Tensors | None
) -> tuple[Ints, Ints, Ints]:
    """Row, term and bytes of the births or deaths of a run; `parts` tells what is for weights if that has
    another turn."""
    segment, row = getattr(tensors, f"{end}_segment"), getattr(tensors, f"{end}_row")
    late = np.zeros(len(tensors), dtype=bool)
    if parts is not None:
        late = getattr(parts, f"{end}_segment") == WEIGHT
    step = tensors.when == ONCE
    now = runs_in_turn(tensors.when, late, turn) & ~step
    birth = end == "birth"
    ends = (turn.first, turn.first_input) if birth else (turn.last, turn.last_input)
    mine = (segment == code) & (now | (step & np.where(late, *ends)))
    if birth:
        place = np.searchsorted(kept, row[mine], side="left")
    else:
        mine &= tensors.birth_segment != STATE
        if stage_alternates(tensors):
            mine, row = crossing(tensors, code, turn, mine, row)
        place = np.searchsorted(kept, row[mine], side="right") - 1
    return np.clip(place, 0, max(len(kept) - 1, 0)), tensors.term[mine], tensors.size[mine]


def stage_alternates(tensors: Tensors) -> bool:
    """Whether some tensors of backward go in the stage's next forward."""
    return bool((tensors.when == SHARDED).any())


def crossing(tensors: Tensors, code: int, turn: Turn, mine: Flags, row: Ints) -> tuple[Flags, Ints]:
    """Deaths of a run and their rows, with tensors of the backward before it."""
    crosses = tensors.forward_row >= 0
    ends = crosses & (not turn.sharded) & (SEGMENTS[code] in ("F", "G"))
    return np.where(crosses, ends, mine), np.where(ends & (SEGMENTS[code] == "F"), tensors.forward_row, row)


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
    born, gone, row, most = [], [], 1, widest(stages)
    for number, stage in enumerate(stages):
        tensors = stage.tensors
        there = (tensors.birth_segment != STATE) & (~tensors.alone | (number == most))
        for code, place, events in (
            (tensors.birth_segment, tensors.birth_row, born),
            (tensors.death_segment, tensors.death_row, gone),
        ):
            mine = (code == STEP) & there & (place >= 0)
            at = np.where(place[mine] == 0, 0, place[mine] + row - 1)
            events.append((at, tensors.term[mine], tensors.size[mine]))
        row += len(stage.rows["O"]) - 1
    births, deaths = (
        tuple(np.concatenate(column) for column in zip(*part, strict=True)) for part in (born, gone)
    )
    return of_events(row, births, deaths)  # type: ignore[arg-type]


def gone_before(stages: Mapping[int, Stage], columns: Columns) -> Levels:
    """Bytes by term of every micro-batch that go between a rank's last run and its optimizer."""
    total = np.zeros(len(TERMS))
    for number, stage in stages.items():
        for letter in "BI":
            runs = int(((columns.stage == number) & (columns.segment == RUNS.index(letter))).sum())
            tensors = stage.tensors_of(letter) if runs else stage.tensors
            mine = (tensors.death_segment == STEP) & (tensors.death_row < 0)
            total += runs * np.bincount(tensors.term[mine], weights=tensors.size[mine], minlength=len(TERMS))
    return total


Summaries = dict[tuple[int, str, Turn], Summary]


def rank_memory(
    stages: Mapping[int, Stage], order: Sequence[Run] | Columns, known: Summaries | None = None
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
    columns = order if isinstance(order, Columns) else Columns.of(order)
    parts, which = run_summaries(stages, columns, known)
    parts.append(optimizer_step(list(stages.values())))
    which = np.append(which, len(parts) - 1)
    entry = sum((state_of(stage) for stage in stages.values()), np.zeros(len(TERMS)))
    change = np.array([part.change for part in parts])[which]
    before = entry + np.concatenate((np.zeros((1, len(TERMS))), np.cumsum(change, axis=0)[:-1]))
    before[-1] -= gone_before(stages, columns)
    peaks = before.sum(axis=1) + np.array([part.peak for part in parts])[which]
    top = int(np.argmax(peaks))
    return RankMemory(
        peak_bytes=int(peaks[top]),
        terms=terms_of(before[top] + parts[which[top]].at_peak),
        run=top,
        before=before.sum(axis=1),
        peaks=peaks,
    )


def run_summaries(
    stages: Mapping[int, Stage], columns: Columns, known: Summaries
) -> tuple[list[Summary], Ints]:
    """Summaries of the distinct runs of an order, and which of them each run is."""
    turns = columns.turns()
    if any(stage.alternates for stage in stages.values()):
        turns = np.column_stack((turns, columns.sharded()))
    weights = 2 ** np.arange(turns.shape[1])[::-1]
    packed = (columns.stage * len(RUNS) + columns.segment) * 32 + turns @ weights
    _, example, which = np.unique(packed, return_index=True, return_inverse=True)
    parts = []
    for row in example.tolist():
        stage, segment = stages[int(columns.stage[row])], RUNS[columns.segment[row]]
        turn = ONLY if stage.steady else Turn(*turns[row].tolist())
        key = (id(stage), segment, turn)
        if key not in known:
            known[key] = summarise(stage, segment, turn)
        parts.append(known[key])
    return parts, which
