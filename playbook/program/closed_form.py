"""The derived form: a step's memory as polynomials in the sizes, evaluated for many layouts at once.

Run the walk on symbols for two numbers of layers. Every row's level is linear in a few monomials, and in the
number of layers: C(L) = C₀ + (L − L₀)·(C₁ − C₀). The peak is the maximum over rows. Between the first and
the last three layers levels change by equal steps, so those layers stand for all. Where the first few layers
are of another kind, they are among those that stand for themselves.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from playbook.program.polynomial import Monomial, Polynomial, constant, monomial_at
from playbook.program.step import Program
from playbook.tables import TERMS

ENDS = 3
"""Layers at either end that stand for those between."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Peaks:
    """Peaks of many layouts.

    Parameters
    ----------
    bytes
        One peak a layout.
    terms
        Layouts × terms at the peak, in the order of the tables' terms.
    row
        Row of the form that peaks, an index into `ClosedForm.labels`.
    """

    bytes: Floats
    terms: Floats
    row: NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, eq=False)
class ClosedForm:
    """Memory of one structural variant of a step.

    Parameters
    ----------
    labels
        Id of each row that can be the peak; a layer below 0 is counted from the last.
    monomials
        What the coefficients multiply.
    base, slope
        Rows × terms × monomials: the level at `layers` layers, and what each further layer adds.
    layers
        Layers of the smaller program.
    """

    labels: tuple[str, ...]
    monomials: tuple[Monomial, ...]
    base: Floats
    slope: Floats
    layers: int

    def peaks(self, values: Mapping[str, Any]) -> Peaks:
        """Evaluate the peak.

        Parameters
        ----------
        values
            Number or array of each symbol (b, s, h, a, g, k, f, V, N, t), and of L, the layers.

        Raises
        ------
        ValueError
            If L is below `layers`, where the ends of the model would overlap.
        """
        if np.min(values["L"]) < self.layers:
            raise ValueError(
                f"L={np.min(values['L'])} layers; the derived form holds from {self.layers} on, use the walk"
            )
        columns = [np.asarray(monomial_at(m, as_arrays(values)), dtype=np.float64) for m in self.monomials]
        more = np.asarray(values["L"], dtype=np.float64) - self.layers
        ones = np.broadcast_arrays(*columns, more)
        x = np.stack(ones[:-1], axis=-1).reshape(-1, len(self.monomials))
        both = np.concatenate((x, x * ones[-1].reshape(-1, 1)), axis=1)
        totals = np.concatenate((self.base.sum(axis=1), self.slope.sum(axis=1)), axis=1)
        levels = both @ totals.T
        row = np.argmax(levels, axis=1)
        terms = np.empty((len(row), len(TERMS)))
        for each in np.unique(row):
            mine = row == each
            terms[mine] = both[mine] @ np.concatenate((self.base[each], self.slope[each]), axis=1).T
        return Peaks(bytes=levels[np.arange(len(row)), row], terms=terms, row=row)

    def formula(self, row: int, layers: int) -> dict[str, Polynomial]:
        """Polynomial of each term at a row, for a number of layers."""
        level = self.base[row] + (layers - self.layers) * self.slope[row]
        return {
            term: Polynomial({m: whole(c) for m, c in zip(self.monomials, level[index], strict=True)})
            for index, term in enumerate(TERMS)
            if level[index].any()
        }


def as_arrays(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values as floating-point arrays, which many layouts at once need."""
    return {name: np.asarray(value, dtype=np.float64) for name, value in values.items()}


def whole(value: float) -> int | float:
    """A coefficient as an int where it is one."""
    return int(value) if float(value).is_integer() else float(value)


def derive(fewer: Program, more: Program, layers: int, first: int = ENDS) -> ClosedForm:
    """Derive the form from the same step with `layers` and `layers + 1` layers, both on symbols.

    Parameters
    ----------
    fewer, more, layers
        The two steps, and the layers of the smaller one.
    first
        Layers at the start that stand for themselves.
    """
    monomials = tuple(sorted({m for t in fewer.templates for m in constant(t.bytes).coefficients}))
    places = [aligned(fewer, layers, first), aligned(more, layers + 1, first)]
    common = [label for label in places[0] if label in places[1]]
    levels = [
        coefficients(program, np.array([place[label] for label in common]), monomials)
        for program, place in zip((fewer, more), places, strict=True)
    ]
    base, slope = levels[0], levels[1] - levels[0]
    kept = undominated(base.sum(axis=1), slope.sum(axis=1))
    return ClosedForm(
        labels=tuple(common[row] for row in kept),
        monomials=monomials,
        base=base[kept],
        slope=slope[kept],
        layers=layers,
    )


def undominated(base: Floats, slope: Floats) -> NDArray[np.int64]:
    """Rows that can be the peak somewhere: no other has more of every monomial, at the base and with each
    layer."""
    rows = np.concatenate((base, slope), axis=1)
    _, first = np.unique(rows, axis=0, return_index=True)
    first = np.sort(first)
    distinct = rows[first]
    over = [(distinct >= row).all(axis=1).sum() > 1 for row in distinct]
    return first[~np.array(over)]


def aligned(program: Program, layers: int, first: int = ENDS) -> dict[str, int]:
    """Row of each id; layers near the end are counted from it, those between are left out."""
    found = {}
    for row, layer in enumerate(program.rows.layer.tolist()):
        if first <= layer < layers - ENDS:
            continue
        text = program.id(row)
        if layer >= first:
            text = text.replace(f"layers.{layer}", f"layers.{layer - layers}", 1)
        found[text] = row
    return found


def coefficients(program: Program, rows: NDArray[np.int64], monomials: tuple[Monomial, ...]) -> Floats:
    """Rows × terms × monomials: the sum over the tensors that are alive at each row."""
    order = np.argsort(rows)
    counts = np.empty((len(rows), len(program.templates)))
    counts[order] = alive(program, rows[order])
    sizes = np.zeros((len(program.templates), len(TERMS), len(monomials)))
    column = {monomial: index for index, monomial in enumerate(monomials)}
    for index, tensor in enumerate(program.templates):
        for monomial, coefficient in constant(tensor.bytes).coefficients.items():
            sizes[index, TERMS.index(tensor.term), column[monomial]] = float(coefficient)
    return np.tensordot(counts, sizes, axes=1)


def alive(program: Program, rows: NDArray[np.int64]) -> Floats:
    """How many tensors of each template are alive at each of some rows, given in ascending order."""
    held, kinds = program.held, len(program.templates)
    size = (len(rows) + 1) * kinds
    births = np.searchsorted(rows, held.birth, side="left") * kinds + held.template
    deaths = np.searchsorted(rows, held.death, side="right") * kinds + held.template
    change = np.bincount(births, minlength=size) - np.bincount(deaths, minlength=size)
    return np.cumsum(change.reshape(-1, kinds)[:-1], axis=0).astype(np.float64)
