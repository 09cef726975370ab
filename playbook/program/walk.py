"""Memory: the level of every term at every row, from births and deaths. Sizes below 2⁵³ make the sums
exact."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from playbook.program.ids import PHASES
from playbook.program.step import Program
from playbook.tables import TERMS, table
from playbook.units import gb

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Curve:
    """Levels over the step, thinned for drawing.

    Parameters
    ----------
    labels, phases
        Owner and phase letter of each point.
    levels
        Bytes, points × terms of `TERMS`.
    peak_index
        Point of the peak.
    """

    labels: list[str]
    phases: list[str]
    levels: NDArray[np.float64]
    peak_index: int


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class MemoryWalk:
    """The memory of one rank's step.

    Parameters
    ----------
    program
        What was walked.
    totals
        Bytes while each row runs.
    """

    program: Program
    totals: NDArray[np.float64]

    term_names = TERMS

    def __repr__(self) -> str:
        return f"MemoryWalk(rank {self.program.rank}: peak {gb(self.peak_bytes)} at {self.instant})"

    @cached_property
    def levels(self) -> NDArray[np.float64]:
        """Bytes while each row runs, rows × terms."""
        return self.at(np.arange(len(self.totals)))

    def at(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Bytes by term while each of some rows runs; rows in ascending order."""
        held, terms = self.program.held, len(TERMS)
        size = (len(rows) + 1) * terms
        codes, sizes = self.program.terms, self.program.sizes
        births = np.searchsorted(rows, held.birth, side="left") * terms + codes
        deaths = np.searchsorted(rows, held.death, side="right") * terms + codes
        change = np.bincount(births, weights=sizes, minlength=size)
        change -= np.bincount(deaths, weights=sizes, minlength=size)
        return np.asarray(np.cumsum(change.reshape(-1, terms)[:-1], axis=0), dtype=np.float64)

    @cached_property
    def peak_row(self) -> int:
        """Row of the peak, the first if several are equal."""
        return int(np.argmax(self.totals))

    @property
    def peak_bytes(self) -> int:
        """Most bytes at any row."""
        return int(self.totals[self.peak_row])

    @cached_property
    def terms(self) -> dict[str, int]:
        """Bytes by term at the peak; they add up to it."""
        return self.terms_at(self.peak_row)

    def terms_at(self, row: int) -> dict[str, int]:
        """Bytes by term while a row runs."""
        return terms_of(self.at(np.array([row]))[0])

    @property
    def state(self) -> dict[str, int]:
        """Bytes by term between steps: what never dies."""
        stays = self.program.held.death >= len(self.program)
        sizes = np.where(stays, self.program.sizes, 0)
        sums = np.bincount(self.program.terms, weights=sizes, minlength=len(TERMS))
        return terms_of(np.asarray(sums, dtype=np.float64))

    @property
    def instant(self) -> str:
        """The peak's phase and block, as in "B layers.78"."""
        return self.instant_of(self.peak_row)

    def instant_of(self, row: int) -> str:
        """Phase and block of a row."""
        return f"{self.row_phase(row)} {block_name(self.row_owner(row))}"

    def row_owner(self, row: int) -> str:
        """Module path of a row."""
        return self.program.owner(row)

    def row_phase(self, row: int) -> str:
        """Phase letter of a row."""
        return self.program.phase(row)

    def left_after(self, row: int) -> int:
        """Bytes that are left once a row has ended and what dies with it is gone."""
        held = self.program.held
        return int(self.program.sizes[(held.birth <= row) & (held.death > row)].sum())

    def peak_of(self, phase: str, microbatch: int | None = None) -> int:
        """Most bytes at any row of a phase (recompute, I and W count as backward)."""
        letters = "BRIW" if phase == "B" else phase
        wanted = [PHASES.index(letter) for letter in letters]
        mine = np.isin(self.program.rows.phase, wanted)
        if microbatch is not None:
            mine &= self.program.microbatch == microbatch
        return int(self.totals[mine].max())

    def curve(self, points: int = 160) -> Curve:
        """Thin the walk to about so many points, each the largest of its stretch of rows."""
        rows = len(self.totals)
        edges = np.unique(np.linspace(0, rows, min(points, rows) + 1).astype(int))
        picked = [a + int(np.argmax(self.totals[a:b])) for a, b in zip(edges[:-1], edges[1:], strict=True)]
        picked = sorted({*picked, self.peak_row})
        return Curve(
            labels=[block_name(self.row_owner(row)) for row in picked],
            phases=[self.row_phase(row) for row in picked],
            levels=self.at(np.array(picked)),
            peak_index=picked.index(self.peak_row),
        )

    @property
    def table(self) -> "DataFrame":
        """The memory table's rows for the peak, one a term."""
        op, instant = self.program.id(self.peak_row), self.instant
        common = {"scenario": self.program.scenario, "rank": self.program.rank, "op": op, "instant": instant}
        return table(
            "memory",
            [{**common, "term": t, "bytes": size, "source": "formula"} for t, size in self.terms.items()],
        )


def walk(program: Program) -> MemoryWalk:
    """Walk a program: births at the start of a row, deaths after its end, one cumulative sum."""
    held, rows = program.held, len(program)
    change = np.bincount(held.birth, weights=program.sizes, minlength=rows + 2)
    change -= np.bincount(held.death + 1, weights=program.sizes, minlength=rows + 2)
    return MemoryWalk(program=program, totals=np.asarray(np.cumsum(change)[:rows], dtype=np.float64))


def terms_of(level: NDArray[np.float64]) -> dict[str, int]:
    """Bytes by name, without the terms that are 0."""
    return {name: int(size) for name, size in zip(TERMS, level, strict=True) if size}


def block_name(owner: str) -> str:
    """Fold a module to what stands in a drawing's axis: its layer, or the module itself, or "root".

    Examples
    --------
    >>> block_name("layers.3.mlp"), block_name("lm_head"), block_name("")
    ('layers.3', 'lm_head', 'root')
    """
    parts = owner.split(".")
    return ".".join(parts[:2]) if parts[0] == "layers" else owner or "root"
