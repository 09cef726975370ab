"""One question to a child process: a request as JSON in a file, the answer in another.

The child reads the request, works, and writes its result, or the kind and first line of its error. Nothing of
what it loads stays in the caller's process.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import playbook
from playbook.runtime.environment import rank_environment

KINDS: dict[str, type[Exception]] = {"ValueError": ValueError, "TypeError": TypeError}
"""Errors of the child that are the caller's own; all others are a `RuntimeError` here."""


def ask_child(
    module: str,
    asked: dict[str, Any],
    folder: Path,
    deadline_s: float,
    *,
    what: str,
    late: str,
    threads: int = 1,
) -> Any:
    """Start a child, wait for it, and return what it wrote; it is gone when this returns or raises.

    Parameters
    ----------
    module
        What `python -m` runs: it calls `answer`.
    asked
        The request.
    folder
        Empty, for request, result and log.
    deadline_s
        Seconds after which the child is killed.
    what, late
        What it does, as in "the trace"; what to say when it is late.
    threads
        Of torch in the child.

    Raises
    ------
    TimeoutError
        At the deadline.
    ValueError, TypeError, RuntimeError
        What the child raised, or how it ended.
    """
    request, result, log = (folder / name for name in ("request.json", "result.json", "log"))
    request.write_text(json.dumps(asked))
    command = [sys.executable, "-m", module, str(request), str(result)]
    with log.open("wb") as output:
        # The child ends when its standard input closes, so it cannot outlive this process.
        child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=output, stderr=output, env=child_environment(threads)
        )
        code = end_of(child, deadline_s, late)
    if code == 0 and result.exists():
        return json.loads(result.read_text())
    raise failure_of(code, result, log, what)


def end_of(child: subprocess.Popen[bytes], deadline_s: float, late: str) -> int:
    """Wait for a child's exit code; it is killed if it is late, or if the waiting is interrupted."""
    try:
        return child.wait(timeout=deadline_s)
    except subprocess.TimeoutExpired:
        raise TimeoutError(late) from None
    finally:
        child.kill()
        child.wait()
        if child.stdin is not None:
            child.stdin.close()


def child_environment(threads: int) -> dict[str, str]:
    """Environment of a child: so many threads, and this very package on its path."""
    environment = rank_environment(threads=threads, loopback=True)
    home = str(Path(playbook.__file__).resolve().parent.parent)
    environment["PYTHONPATH"] = ":".join(filter(None, (home, environment.get("PYTHONPATH"))))
    return environment


def failure_of(code: int, result: Path, log: Path, what: str) -> Exception:
    """Say in one line why a child failed: its own error, the signal that ended it, or its last words."""
    if result.exists():
        error = json.loads(result.read_text())
        kind = KINDS.get(error["kind"])
        if kind is not None:
            return kind(error["message"])
        return RuntimeError(f"{what} failed: {error['kind']}: {error['message']}")
    if code < 0:
        return RuntimeError(f"the process of {what} was ended by {signal.Signals(-code).name}")
    lines = log.read_text(errors="replace").strip().splitlines()
    last = lines[-1] if lines else "it said nothing"
    return RuntimeError(f"the process of {what} ended with code {code}: {last}")


def answer(work: Callable[[dict[str, Any]], Any], request: Path, result: Path) -> int:
    """Answer one request in the child; the exit code says whether the result is an answer or an error."""
    threading.Thread(target=end_with_parent, daemon=True).start()
    try:
        found = work(json.loads(request.read_text()))
    except Exception as error:
        traceback.print_exc()
        first_line = next(iter(str(error).splitlines()), "")
        result.write_text(json.dumps({"kind": type(error).__name__, "message": first_line}))
        return 1
    result.write_text(json.dumps(found))
    return 0


def end_with_parent() -> None:
    """End this process when the one that started it closes the pipe to it, or ends itself."""
    while os.read(0, 1):  # the buffered reader would hold a lock at the end of the interpreter
        pass
    os._exit(1)
