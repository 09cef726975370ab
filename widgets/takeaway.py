"""What an explorer gives away as files: asked for by its Export menu, or written by Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

FORMS = ("png", "csv", "order", "trace")
"""Forms that the front end can ask for."""
_TYPES = {"png": "image/png", "csv": "text/csv", "json": "application/json"}


class Takeaway:
    """Files of an explorer that has `png` and `files`."""

    def png(self) -> bytes:
        """The picture as PNG."""
        raise NotImplementedError

    def files(self, form: str) -> list[tuple[str, bytes]]:
        """Names and contents of the files of a form: `csv` of times, `order` for torch, `trace`."""
        raise NotImplementedError

    def send(self, content: Any, buffers: Any = None) -> None:
        """Send a message to the front end; an ipywidget has this."""
        raise NotImplementedError

    def on_export(self, message: dict[str, Any]) -> None:
        """Send files of a form; the front end offers them."""
        form = str(message["form"])
        if form not in FORMS:
            raise ValueError(f"form={form!r}: use one of {', '.join(FORMS)}")
        files = [("pipeline.png", self.png())] if form == "png" else self.files(form)
        for name, content in files:
            self.send({"kind": "file", "name": name, "type": _TYPES[name.rsplit(".", 1)[-1]]}, [content])

    def to_png(self, path: str | Path) -> Path:
        """Write the picture as PNG; return where."""
        return _write(path, self.png())

    def to_csv(self, path: str | Path) -> Path:
        """Write every action of every schedule shown with its times as CSV; return where."""
        return _write(path, self.files("csv")[0][1])

    def to_chrome_trace(self, path: str | Path) -> Path:
        """Write all schedules shown as one trace for chrome://tracing or Perfetto; return where."""
        return _write(path, self.files("trace")[0][1])


def _write(path: str | Path, content: bytes) -> Path:
    path = Path(path)
    path.write_bytes(content)
    return path
