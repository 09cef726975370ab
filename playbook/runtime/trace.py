"""Traces: the real code of one rank of any world, run on fake tensors in a process of its own, without a GPU.

Needs no torch itself. The child process runs the strategy's library code (`playbook.runtime.trace_step`) over
a fake process group and hands back rows and memory under the program's ids, so that `compare` joins both.
"""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from playbook.runtime.child import ask_child
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
    late = (
        f"the trace of rank {rank} of {scenario.world} was not done after {deadline_s:g} s; give a longer "
        "deadline_s, or fewer layers, micro-batches or ranks"
    )
    asked = {"scenario": scenario.to_json(), "rank": rank}
    with tempfile.TemporaryDirectory(prefix="playbook-trace-") as folder:
        found = ask_child(
            CHILD, asked, Path(folder), positive("deadline_s", deadline_s), what="the trace", late=late
        )
    return _read(scenario, rank, found)


def _read(scenario: Scenario, rank: int, found: dict[str, Any]) -> Trace:
    return Trace(
        scenario=scenario,
        rank=rank,
        ids=tuple(found["ids"]),
        payload_bytes=tuple(found["payload_bytes"]),
        levels=np.array(found["levels"], dtype=np.int64),
    )
