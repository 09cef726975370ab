"""The run directory: what a run leaves on disk, only ever added to.

```
run.json        written once, at the start: name, ranks, backend, versions, time
rank0.jsonl …   one JSON object a line, written as it happens: events, phases, tables, the returned value
rank0.log …     what the rank printed, native output included
outcome.json    written once, at the end; absent if the kernel was killed before it
```

Lines are written with one system call each, so that a killed process loses at most the line it was writing.
Runs go to the user's cache, where a pool that starts keeps the newest 200, or to the folder that
`PLAYBOOK_RUNS` names, where all stay.
"""

import contextlib
import json
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from playbook.runtime import environment
from playbook.runtime.plain import decode, encode

LAYOUT_VERSION = 1
KEPT_RUNS = 200
_ABANDONED_S = 24 * 3600.0


def runs_directory() -> Path:
    """Folder that new run directories go to: `PLAYBOOK_RUNS`, else the user's cache, else a temporary one.

    Raises
    ------
    ValueError
        If `PLAYBOOK_RUNS` names a folder that cannot be written to.
    """
    chosen = environment.chosen_runs_directory()
    if chosen is not None:
        if not _writable(chosen):
            raise ValueError(
                f"PLAYBOOK_RUNS={chosen} cannot be written to: name a folder that can, or unset it"
            )
        return chosen
    cache = environment.cache_runs_directory()
    fallback = Path(tempfile.gettempdir()) / f"playbook-runs-{os.getuid()}"
    return cache if _writable(cache) or not _writable(fallback) else fallback


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


def create(description: Mapping[str, Any], directory: Path | None = None) -> Path:
    """Make a run directory and write its run.json.

    Parameters
    ----------
    description
        `name`, `ranks`, `backend` and whatever else describes the run; plain data.
    directory
        Where; a new folder under `runs_directory()` if None.
    """
    if directory is None:
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
        label = "".join(c if c.isalnum() or c in "-_" else "-" for c in description["name"])[:40]
        directory = runs_directory() / f"{stamp}-{label}-{secrets.token_hex(3)}"
    directory.mkdir(parents=True, exist_ok=True)
    started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    _write_once(directory / "run.json", {"layout": LAYOUT_VERSION, "started": started, **description})
    return directory


def prune(folder: Path) -> None:
    """Remove the oldest runs of a folder but for the newest 200; those without an outcome stay for a day."""
    runs = sorted((path for path in folder.iterdir() if (path / "run.json").is_file()), reverse=True)
    for run in runs[KEPT_RUNS:]:
        with contextlib.suppress(OSError):
            if (run / "outcome.json").exists() or time.time() - run.stat().st_mtime > _ABANDONED_S:
                shutil.rmtree(run, ignore_errors=True)


def finish(directory: Path, *, state: str, seconds: float, error: str = "") -> None:
    """Write outcome.json: how the run ended ("done", "failed", "cancelled") and how long it took."""
    _write_once(directory / "outcome.json", {"state": state, "seconds": seconds, "error": error})


def records_path(directory: Path, rank: int) -> Path:
    """File of JSON lines that a rank writes."""
    return directory / f"rank{rank}.jsonl"


def log_path(directory: Path, rank: int) -> Path:
    """File that a rank's standard output and error go to."""
    return directory / f"rank{rank}.log"


class RecordFile:
    """Appends records to a rank's file, each as one line and one system call."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def append(self, record: Mapping[str, Any]) -> None:
        """Write one record; it survives the death of this process from here on."""
        os.write(self._descriptor, json.dumps(encode(record), separators=(",", ":")).encode() + b"\n")

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


def read_json(path: Path) -> dict[str, Any]:
    """Read run.json or outcome.json.

    Raises
    ------
    ValueError
        If it is missing or not a JSON object.
    """
    try:
        found = json.loads(path.read_bytes())
    except OSError:
        raise ValueError(f"{path.parent} is not a run directory: it has no {path.name}") from None
    except ValueError as problem:
        raise ValueError(f"{path} is not JSON ({problem}): the run directory is damaged") from None
    if not isinstance(found, dict):
        raise ValueError(
            f"{path} holds a {type(found).__name__}, not an object: the run directory is damaged"
        )
    return found


def read_records(path: Path) -> list[dict[str, Any]]:
    """Records of one rank; a last line that was cut off by a kill is left out.

    Raises
    ------
    ValueError
        If another line is not a JSON object.
    """
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")
    records = []
    for number, line in enumerate(lines[:-1], start=1):
        try:
            record = decode(json.loads(line))
        except ValueError:
            record = None
        if not isinstance(record, dict) or "kind" not in record:
            raise ValueError(f"{path}, line {number} is not a record: the run directory is damaged")
        records.append(record)
    return records


def read_last_phase(directory: Path, rank: int) -> str:
    """Phase that a rank wrote last, if it is near the end of its file; else empty."""
    lines = read_tail(records_path(directory, rank), 256 * 1024).splitlines()
    for line in reversed(lines):
        if '"kind":"phase"' in line:
            try:
                return str(json.loads(line)["name"])
            except (ValueError, KeyError):  # cut off by a kill
                continue
    return ""


def read_tail(path: Path, size_bytes: int = 4096) -> str:
    """Last part of a text file, at most `size_bytes`, from the start of a line; empty if it is missing."""
    try:
        with path.open("rb") as file:
            length = file.seek(0, os.SEEK_END)
            file.seek(max(0, length - size_bytes))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    return text.partition("\n")[2] if length > size_bytes else text


def _write_once(path: Path, content: Mapping[str, Any]) -> None:
    """Write a file so that a reader sees all of it or none."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(json.dumps(encode(content), indent=1))
    draft.replace(path)
