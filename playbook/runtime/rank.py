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

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playbook.runtime.reporter import Reporter
from playbook.tables import TABLES


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """Where a function runs.

    `rank` of `ranks`; `backend` is "gloo", "nccl" or "shared-gpu"; `device` is torch's name of this rank's
    device, such as "cuda:1"; `directory` is the run directory.
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
        What it is: "progress" (with `done` and `total`; stale ones are dropped), or a word of yours.
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
    """Add rows to one of the run's tables; a killed run keeps them.

    Parameters
    ----------
    name
        "memory", "traffic", "timeline" or "parity".
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
        return {str(name): list(column) for name, column in rows.items()}
    each = list(rows)
    names = dict.fromkeys(str(name) for row in each for name in row)
    return {name: [row.get(name) for row in each] for name in names}


def call(function: Callable[..., Any], args: tuple[Any, ...], levers: Mapping[str, Any]) -> Any:
    """Run a function on this rank; what it returns and the tables in it go to the run directory.

    A returned dict may hold `tables`, a dict of the run's tables; they are taken out of the value.
    """
    current_phase("running the function")
    value = function(*args, **levers)
    tables = value.get("tables") if isinstance(value, dict) else None
    if isinstance(tables, dict) and tables.keys() <= TABLES.keys():
        value = {name: item for name, item in value.items() if name != "tables"}
        for name, rows in tables.items():
            report_table(name, rows)
    current_phase("returning the value")
    if _current is not None:
        _current[1].value(value)
    return value


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
