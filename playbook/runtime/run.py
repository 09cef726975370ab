"""A finished run, live or read back from its directory."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from playbook import tables
from playbook.runtime import rundir
from playbook.runtime.verdict import is_peers_fault
from playbook.units import counted

if TYPE_CHECKING:
    from pandas import DataFrame

Record = dict[str, Any]


@dataclass(frozen=True, kw_only=True, eq=False)
class Run:
    """What real ranks did.

    `values` holds what each rank returned, `seconds` the wall time from the start to the last rank's end,
    `backend` is "gloo", "nccl" or "shared-gpu"; `state` is "done", "failed", "cancelled", or "unfinished" if
    the kernel was killed. Tables and events are read from `directory` when asked for.
    """

    name: str
    ranks: int
    backend: str
    directory: Path
    state: str
    seconds: float
    values: tuple[Any, ...]
    error: str = ""
    description: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def memory(self) -> "DataFrame":
        """Memory table: bytes by rank, instant and term."""
        return self.table("memory")

    @property
    def traffic(self) -> "DataFrame":
        """Traffic table: payload and wire bytes by collective."""
        return self.table("traffic")

    @property
    def timeline(self) -> "DataFrame":
        """Timeline table: when each action ran, in seconds."""
        return self.table("timeline")

    @property
    def parity(self) -> "DataFrame":
        """Parity table: relative errors against the unsharded baseline."""
        return self.table("parity")

    @cached_property
    def events(self) -> tuple[Record, ...]:
        """All events of all ranks, oldest first."""
        kept = [r for rank in self._records for r in rank if r["kind"] not in ("table", "value")]
        return tuple(sorted(kept, key=lambda record: record["time_s"]))

    def table(self, name: str) -> "DataFrame":
        """Rows that the ranks reported for a table; empty if they reported none."""
        parts = [
            r["columns"] for rank in self._records for r in rank if r["kind"] == "table" and r["name"] == name
        ]
        columns: dict[str, list[Any]] = {}
        length = 0
        for part in parts:
            rows = max((len(column) for column in part.values()), default=0)
            for key in part.keys() - columns.keys():
                columns[key] = [None] * length
            for key, column in columns.items():
                column.extend(part.get(key, [None] * rows))
            length += rows
        return tables.table(name, columns)

    def log(self, rank: int) -> str:
        """Everything that a rank printed."""
        if not 0 <= rank < self.ranks:
            raise ValueError(
                f"rank {rank} of a run on {counted(self.ranks, 'rank')}: give 0 to {self.ranks - 1}"
            )
        path = rundir.log_path(self.directory, rank)
        return path.read_text(errors="replace") if path.exists() else ""

    def save(self, path: str | Path) -> Path:
        """Copy the run directory to `path`, which must not exist yet or be empty; `load_run` reads it."""
        target = Path(path).expanduser()
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise ValueError(f"{target} exists already: save the run to a new folder")
        return Path(shutil.copytree(self.directory, target, dirs_exist_ok=True))

    @cached_property
    def _records(self) -> tuple[list[Record], ...]:
        return tuple(
            rundir.read_records(rundir.records_path(self.directory, rank)) for rank in range(self.ranks)
        )


def load_run(path: str | Path) -> Run:
    """Read a run directory, also one whose kernel was killed.

    Raises
    ------
    ValueError
        If it is missing, is not a run directory or is damaged.
    """
    directory = Path(path).expanduser()
    if not directory.is_dir():
        raise ValueError(f"{directory} is not a folder: give the directory of a run (run.directory)")
    description = rundir.read_json(directory / "run.json")
    ranks = description.get("ranks")
    if description.get("layout") != rundir.LAYOUT_VERSION or type(ranks) is not int or ranks < 1:
        raise ValueError(
            f"{directory / 'run.json'} has layout {description.get('layout')!r} and ranks {ranks!r}; "
            f"this version reads layout {rundir.LAYOUT_VERSION} with ranks of at least 1"
        )
    ended = directory / "outcome.json"
    outcome = rundir.read_json(ended) if ended.exists() else {}
    records = tuple(rundir.read_records(rundir.records_path(directory, rank)) for rank in range(ranks))
    errors = [record for rank in records for record in rank if record["kind"] == "error"]
    first = min(
        errors, key=lambda r: (is_peers_fault(r["name"], r.get("kinds", ())), r["time_s"]), default=None
    )
    return Run(
        name=str(description.get("name", "")),
        ranks=ranks,
        backend=str(description.get("backend", "")),
        directory=directory,
        state=str(outcome.get("state", "unfinished" if first is None else "failed")),
        seconds=float(outcome.get("seconds", "nan")),
        values=tuple(next((r["value"] for r in rank if r["kind"] == "value"), None) for rank in records),
        error=str(outcome.get("error", "" if first is None else f"rank {first['rank']}: {first['name']}")),
        description=description,
    )
