"""What a function may call while it runs on a rank: where it is, and how it reports.

Outside a run every report is dropped, so that the same code also runs in a plain script.

Examples
--------
>>> from playbook.runtime.rank import current_phase, emit, here
>>> def train(steps):
...     current_phase("forward")
...     for step in range(steps):
...         emit("progress", "train", done=step + 1, total=steps)
...     return here().rank
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playbook.runtime.reporter import Reporter
from playbook.tables import TABLES


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """Where a function runs.

    `rank` of `ranks`; `backend` is "gloo", "nccl" or "shared-gpu"; `device` is torch's name of the rank's device
    ("cpu", "cuda:1"); `directory` is the run directory.
    """

    rank: int
    ranks: int
    backend: str
    device: str
    directory: Path


_current: tuple[Seat, Reporter] | None = None  # a rank runs one function at a time


def here() -> Seat:
    """Return where this function runs.

    Raises
    ------
    ValueError
        If it does not run on a rank.
    """
    if _current is None:
        raise ValueError("this code does not run on a rank: submit it to a pool, or use torchrun's session()")
    return _current[0]


def emit(kind: str, name: str, **fields: Any) -> None:
    """Report an event: to the kernel at once, and to the rank's file.

    Parameters
    ----------
    kind
        What it is: "progress" (with `done` and `total`; stale ones are dropped), "timeline", or a word of yours.
    name
        Which one.
    **fields
        Plain data; `rank` and `time_s` (monotonic clock) are added.
    """
    if _current is not None:
        _current[1].emit(kind, name, fields)


def current_phase(text: str) -> None:
    """Say what this rank is doing from here on; it is named if the rank fails."""
    if _current is not None:
        _current[1].enter(text)


def report_table(name: str, rows: Iterable[Mapping[str, Any]] | Mapping[str, Iterable[Any]]) -> None:
    """Add rows to one of the run's tables ("memory", "traffic", "timeline", "parity"); a killed run keeps them.

    Parameters
    ----------
    name
        Table.
    rows
        Dicts, one a row, or one dict of columns. A missing `rank` column is filled with this rank.

    Raises
    ------
    ValueError
        If there is no such table or column.
    """
    if name not in TABLES:
        raise ValueError(f"table {name!r} is not known; tables are {', '.join(TABLES)}")
    columns = as_columns(rows)
    unknown = columns.keys() - set(TABLES[name])
    if unknown:
        raise ValueError(
            f"table {name} has no column {min(unknown)!r}; its columns are {', '.join(TABLES[name])}"
        )
    if _current is None:
        return
    length = max((len(column) for column in columns.values()), default=0)
    if "rank" in TABLES[name]:
        columns.setdefault("rank", [_current[0].rank] * length)
    _current[1].table(name, columns)


def as_columns(rows: Iterable[Mapping[str, Any]] | Mapping[str, Iterable[Any]]) -> dict[str, list[Any]]:
    """Rows as columns; a field that a row lacks is None.

    Examples
    --------
    >>> as_columns([{"a": 1}, {"a": 2, "b": 3}])
    {'a': [1, 2], 'b': [None, 3]}
    """
    if isinstance(rows, Mapping):
        return {name: list(column) for name, column in rows.items()}
    rows = list(rows)
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


@contextmanager
def on_rank(seat: Seat, reporter: Reporter) -> Iterator[None]:
    """Make `here`, `emit` and the other calls of this module mean this rank and this run."""
    global _current
    _current = (seat, reporter)
    try:
        yield
    finally:
        _current = None
        reporter.close()
