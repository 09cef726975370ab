"""Seconds of a pipeline stage against the size of its micro-batch: larger ones run faster a sequence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from playbook.spec.rules import not_negative, positive, whole
from playbook.units import counted, seconds

if TYPE_CHECKING:
    from pandas import DataFrame

SECONDS = ("forward_s", "backward_s", "backward_input_s", "backward_weight_s")
PARTS = ("backward_input_s", "backward_weight_s")


class StageSeconds(NamedTuple):
    """Seconds of one micro-batch on a stage; the two parts of backward are None where it was not split."""

    forward_s: float
    backward_s: float
    backward_input_s: float | None
    backward_weight_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTimes:
    """A table of stage seconds, measured or made up, over micro-batch sizes.

    Parameters
    ----------
    sequences
        Micro-batch sizes in sequences, rising.
    forward_s
        Seconds of a stage's forward at each size.
    backward_s
        Seconds of its backward in one; the sum of the two parts if left out.
    backward_input_s, backward_weight_s
        Seconds of its backward for the input and for the weights; both or neither.
    source
        Where the numbers come from, as in every table: "measured:gloo", "published", …
    about
        What was timed, in words: model, layers, sequence length, machine.

    Raises
    ------
    ValueError, TypeError
        If the columns do not fit together, or a time is negative or no number.

    Examples
    --------
    >>> times = StageTimes(sequences=(1, 4), forward_s=(0.010, 0.028), backward_s=(0.020, 0.056))
    >>> round(times.at(2).forward_s, 6)
    0.016
    """

    sequences: tuple[int, ...]
    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...] = ()
    backward_input_s: tuple[float, ...] | None = None
    backward_weight_s: tuple[float, ...] | None = None
    source: str = "published"
    about: str = ""

    def __post_init__(self) -> None:
        sizes = tuple(whole("sequences", size) for size in self.sequences)
        if not sizes or list(sizes) != sorted(set(sizes)):
            raise ValueError(
                f"sequences={self.sequences}; give micro-batch sizes that rise, as in 1, 2, 4, 8"
            )
        object.__setattr__(self, "sequences", sizes)
        if (self.backward_input_s is None) != (self.backward_weight_s is None):
            raise ValueError(
                "only one of backward_input_s and backward_weight_s is given; give both or neither"
            )
        for name in ("forward_s", *(PARTS if self.backward_input_s is not None else ())):
            object.__setattr__(self, name, self._column(name, getattr(self, name)))
        if not len(self.backward_s) and self.backward_input_s and self.backward_weight_s:
            sums = tuple(map(sum, zip(self.backward_input_s, self.backward_weight_s, strict=True)))
            object.__setattr__(self, "backward_s", sums)
        object.__setattr__(self, "backward_s", self._column("backward_s", self.backward_s))

    def _column(self, name: str, values: Sequence[float]) -> tuple[float, ...]:
        if len(values) != len(self.sequences):
            raise ValueError(
                f"{name} has {counted(len(values), 'time')} for "
                f"{counted(len(self.sequences), 'size')}; give one for each"
            )
        rule = positive if name == "forward_s" else not_negative
        return tuple(rule(name, float(value)) for value in values)

    @property
    def split(self) -> bool:
        """Whether the two parts of backward are known."""
        return self.backward_input_s is not None

    def at(self, micro_batch: float) -> StageSeconds:
        """Seconds at a size between those of the table.

        Straight lines between the sizes, through the largest time up to each: a larger micro-batch that was
        measured faster than a smaller one shows noise, not a gain.

        Raises
        ------
        ValueError
            If the size is outside those of the table.
        """
        low, high = self.sequences[0], self.sequences[-1]
        if not low <= micro_batch <= high:
            raise ValueError(
                f"micro_batch={micro_batch:g}: the table has sizes from {low} to {high} and says nothing "
                f"beyond; measure that size too, or use one between"
            )
        columns = [getattr(self, name) for name in SECONDS]
        return StageSeconds(*(None if c is None else self._between(c, micro_batch) for c in columns))  # type: ignore[arg-type]

    def _between(self, column: Sequence[float], micro_batch: float) -> float:
        return float(np.interp(micro_batch, self.sequences, np.maximum.accumulate(column)))

    @property
    def table(self) -> DataFrame:
        """Rows by size: sequences, forward_s, backward_s, backward_input_s, backward_weight_s, source."""
        from pandas import DataFrame

        empty = (math.nan,) * len(self.sequences)
        columns = {name: getattr(self, name) or empty for name in SECONDS}
        return DataFrame({"sequences": self.sequences, **columns, "source": self.source})

    def to_csv(self, path: str | Path | None = None) -> str:
        """Write the table as CSV; to `path` too if given."""
        text = self.table.to_csv(index=False)
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    @classmethod
    def from_csv(cls, path: str | Path, about: str = "") -> StageTimes:
        """Read a CSV with the columns of `table`; backward_s or its parts, and source, may be left out."""
        from pandas import read_csv

        if not Path(path).is_file():
            raise ValueError(
                f"{path}: there is no such file; give a CSV with columns sequences,forward_s,backward_s"
            )
        return cls.from_table(read_csv(path), about)

    @classmethod
    def from_table(cls, table: DataFrame | Mapping[str, Sequence[Any]], about: str = "") -> StageTimes:
        """Read a DataFrame, or a dict of columns, in the form of `table`.

        Raises
        ------
        ValueError
            If a column is missing.
        """
        columns = {str(name): list(table[name]) for name in table}
        for name in ("sequences", "forward_s"):
            if name not in columns:
                raise ValueError(
                    f"there is no column {name!r}; columns are {', '.join(('sequences', *SECONDS))}"
                )
        sources = {str(source) for source in columns.get("source", ("published",))}
        if len(sources) > 1:
            raise ValueError(f"sources {', '.join(sorted(sources))} are mixed; give one table for each")
        known = {name: tuple(columns[name]) for name in SECONDS if _is_known(columns.get(name))}
        sizes = tuple(int(size) for size in columns["sequences"])
        return cls(sequences=sizes, source=sources.pop(), about=about, **known)

    def __repr__(self) -> str:
        rows = ", ".join(
            f"{size}: {seconds(f)} + {seconds(b)}"
            for size, f, b in zip(self.sequences, self.forward_s, self.backward_s, strict=True)
        )
        about = f"{self.about}; " if self.about else ""
        return f"StageTimes({about}sequences: forward + backward = {rows}; {self.source})"


def _is_known(column: Sequence[Any] | None) -> bool:
    return column is not None and not all(math.isnan(float(value)) for value in column)
