"""The rank's side of reporting: records go to the rank's file at once, and to the kernel in batches."""

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from playbook.runtime.plain import encode
from playbook.runtime.rundir import RecordFile, records_path

Event = dict[str, Any]
Send = Callable[[list[Event]], None]

_BATCH_S = 0.01
_PROGRESS_S = 0.02
_LONGEST_QUEUE = 50_000


class Courier:
    """Sends events to the kernel from a thread of its own, so that a rank never waits for the kernel.

    Parameters
    ----------
    send
        Sends one batch; it may block.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._waiting: list[Event] = []
        self._news = threading.Condition()
        self._sending = threading.Lock()
        threading.Thread(target=self._run, name="playbook-courier", daemon=True).start()

    def post(self, event: Event) -> None:
        """Hand over an event; stale progress goes first if the kernel has not read for long."""
        with self._news:
            if len(self._waiting) >= _LONGEST_QUEUE:
                self._waiting = [e for e in self._waiting if e["kind"] != "progress"][-_LONGEST_QUEUE // 2 :]
            self._waiting.append(event)
            self._news.notify()

    def flush(self) -> None:
        """Send what waits, in order, before this returns."""
        with self._sending:
            with self._news:
                batch, self._waiting = self._waiting, []
            if batch:
                self._send(batch)

    def _run(self) -> None:
        while True:
            with self._news:
                self._news.wait_for(lambda: self._waiting)
            self.flush()
            time.sleep(_BATCH_S)


class Reporter:
    """What one rank reports during one run.

    Parameters
    ----------
    rank
        Rank that reports.
    directory
        Run directory, which must exist.
    post
        Takes each event on to the kernel; None if nobody follows the run live, as under torchrun.
    """

    def __init__(self, *, rank: int, directory: Path, post: Callable[[Event], None] | None) -> None:
        self.rank = rank
        self.directory = directory
        self.phase = "starting"
        self._post = post
        self._file = RecordFile(records_path(directory, rank))
        self._lock = threading.Lock()
        self._open = True
        self._progressed: dict[str, float] = {}

    def emit(self, kind: str, name: str, fields: Mapping[str, Any]) -> None:
        """Write an event and send it on; progress of one name at most every 20 ms."""
        now = time.monotonic()
        if kind == "progress" and not self._is_due(name, fields, now):
            return
        event: Event = {"rank": self.rank, "time_s": now, "kind": kind, "name": name, **encode(dict(fields))}
        if self._append(event) and self._post is not None:
            self._post(event)

    def enter(self, phase: str) -> None:
        """Mark the phase that a failure of this rank is reported with."""
        self.phase = phase
        self.emit("phase", phase, {})

    def table(self, name: str, columns: Mapping[str, list[Any]]) -> None:
        """Write rows of one of the run's tables; only the number of rows is sent on."""
        rows = max((len(column) for column in columns.values()), default=0)
        self._append({"rank": self.rank, "kind": "table", "name": name, "columns": dict(columns)})
        self.emit("rows", name, {"rows": rows})

    def value(self, value: Any) -> None:
        """Write what the rank returned."""
        self._append(
            {"rank": self.rank, "time_s": time.monotonic(), "kind": "value", "name": "", "value": value}
        )

    def close(self) -> None:
        """Stop writing; later reports of threads that a job has left behind are dropped."""
        with self._lock:
            if self._open:
                self._open = False
                self._file.close()

    def _append(self, record: Mapping[str, Any]) -> bool:
        with self._lock:
            if self._open:
                self._file.append(record)
            return self._open

    def _is_due(self, name: str, fields: Mapping[str, Any], now: float) -> bool:
        last = self._progressed.get(name, float("-inf"))
        complete = fields.get("total") is not None and fields.get("done") == fields["total"]
        if now - last < _PROGRESS_S and not complete:
            return False
        self._progressed[name] = now
        return True
