"""Traces: the real code of one rank of any world, run on fake tensors in a process of its own, without a GPU.

Needs no torch itself. The child process runs the strategy's library code (`playbook.runtime.trace_step`) over
a fake process group and hands back rows and memory under the program's ids, so that `compare` joins both.
"""

import json
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import playbook
from playbook.runtime.environment import rank_environment
from playbook.runtime.trace_result import Trace
from playbook.runtime.trace_scope import check_traceable
from playbook.spec import Scenario
from playbook.spec.rules import positive, whole

CHILD = "playbook.runtime.trace_child"

__all__ = ["Trace", "trace"]


def trace(scenario: Scenario, rank: int | None = None, deadline_s: float = 300.0) -> Trace:
    """Run the real step of one rank under fake tensors and return what it did and held.

    Parameters
    ----------
    scenario
        What to run: one rank of its world, of any size. A framework of "torch" or "textbook" runs the
        reference transformer under DDP, ZeroRedundancyOptimizer, FSDP2, DTensor and pipelining.
    rank
        Which rank to be; None is the one with the most memory, the first.
    deadline_s
        Seconds after which the child process is killed.

    Returns
    -------
    Trace
        Rows and memory of the third step: buffers, buckets and optimizer state are there by then.

    Raises
    ------
    ValueError
        If the scenario is not one that can be traced; the message says what could.
    TimeoutError
        If the child has not finished by the deadline.
    RuntimeError
        If the child failed.

    Notes
    -----
    Traced, not measured: no time, no allocator's unused memory, no kernel's inner workspace.
    """
    if not isinstance(scenario, Scenario):
        raise TypeError(f"trace takes a Scenario, not a {type(scenario).__name__}")
    check_traceable(scenario)
    rank = whole("rank", 0 if rank is None else rank, least=0)
    scenario.layout.coordinates(rank)  # refuses a rank outside the world
    with tempfile.TemporaryDirectory(prefix="playbook-trace-") as folder:
        found = _run_child(scenario, rank, positive("deadline_s", deadline_s), Path(folder))
    return _read(scenario, rank, found)


def _run_child(scenario: Scenario, rank: int, deadline_s: float, folder: Path) -> dict[str, Any]:
    """Start the child, wait for it, and return what it wrote; it is gone when this returns or raises."""
    request, result, log = (folder / name for name in ("request.json", "result.json", "log"))
    request.write_text(json.dumps({"scenario": scenario.to_json(), "rank": rank}))
    command = [sys.executable, "-m", CHILD, str(request), str(result)]
    with log.open("wb") as output:
        # The child ends when its standard input closes, so it cannot outlive this process.
        child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=output, stderr=output, env=_environment()
        )
        try:
            code = child.wait(timeout=deadline_s)
        except subprocess.TimeoutExpired:
            raise TimeoutError(
                f"the trace of rank {rank} of {scenario.world} was not done after {deadline_s:g} s; give a "
                "longer deadline_s, or fewer layers, micro-batches or ranks"
            ) from None
        finally:
            child.kill()
            child.wait()
            if child.stdin is not None:
                child.stdin.close()
    if code == 0 and result.exists():
        return json.loads(result.read_text())
    raise _failure(code, result, log)


def _environment() -> dict[str, str]:
    """Environment of the child: one thread, and this very package on its path."""
    environment = rank_environment(threads=1, loopback=True)
    home = str(Path(playbook.__file__).resolve().parent.parent)
    environment["PYTHONPATH"] = ":".join(filter(None, (home, environment.get("PYTHONPATH"))))
    return environment


def _failure(code: int, result: Path, log: Path) -> Exception:
    """Say in one line why the child failed: its own error, the signal that ended it, or its last words."""
    if result.exists():
        error = json.loads(result.read_text())
        kind = {"ValueError": ValueError, "TypeError": TypeError}.get(error["kind"], RuntimeError)
        return kind(f"the trace failed: {error['kind']}: {error['message']}")
    if code < 0:
        return RuntimeError(f"the tracing process was ended by {signal.Signals(-code).name}")
    lines = log.read_text(errors="replace").strip().splitlines()
    return RuntimeError(
        f"the tracing process ended with code {code}: {lines[-1] if lines else 'it said nothing'}"
    )


def _read(scenario: Scenario, rank: int, found: dict[str, Any]) -> Trace:
    return Trace(
        scenario=scenario,
        rank=rank,
        ids=tuple(found["ids"]),
        payload_bytes=tuple(found["payload_bytes"]),
        levels=np.array(found["levels"], dtype=np.int64),
    )
