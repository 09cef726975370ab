"""Simulated actions as rows of the timeline table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from playbook.tables import table

if TYPE_CHECKING:
    from pandas import DataFrame

    from playbook.program.simulation import Simulation

KIND_WORDS = ("forward", "backward", "backward_input", "backward_weight")
"""`KINDS` in the words of the timeline table."""


def timeline_of(timed: Simulation, waits: bool = False) -> DataFrame:
    """Make the timeline table of a simulation.

    Parameters
    ----------
    timed
        What was simulated.
    waits
        Add a row "wait" for the idle time before an action and a row "idle" for that after a rank's last:
        then the rows of a rank, pairs counted once, fill the makespan.
    """
    rows = _action_rows(timed)
    if waits:
        parts = (rows, _wait_rows(timed), _idle_rows(timed))
        rows = {column: np.concatenate([np.asarray(part[column]) for part in parts]) for column in rows}
    filled = {"low_s": rows["duration_s"], "high_s": rows["duration_s"]}
    constant = {"scenario": "", "lane": "compute", "bytes": 0, "source": "simulated"}
    return table("timeline", {**rows, **filled, **constant})


def _action_rows(timed: Simulation) -> dict[str, Any]:
    return {
        "rank": timed.rank,
        "op": timed.ids,
        "kind": [KIND_WORDS[kind] for kind in timed.kind.tolist()],
        "label": timed.labels,
        "microbatch": timed.microbatch,
        "start_s": timed.start,
        "duration_s": timed.duration,
    }


def _wait_rows(timed: Simulation) -> Mapping[str, Any]:
    rows = np.flatnonzero(timed.waited > 0)
    ids, waited = timed.ids, timed.waited[rows]
    return {
        "rank": timed.rank[rows],
        "op": [f"{ids[row]}/wait#0" for row in rows.tolist()],
        "kind": ["wait"] * rows.size,
        "label": [timed.wait_words(row) for row in rows.tolist()],
        "microbatch": timed.microbatch[rows],
        "start_s": timed.start[rows] - waited,
        "duration_s": waited,
    }


def _idle_rows(timed: Simulation) -> Mapping[str, Any]:
    last = np.array(timed.bounds[1:]) - 1
    start = timed.end[last]
    early = np.flatnonzero(start < timed.makespan)
    return {
        "rank": early,
        "op": ["idle#0"] * early.size,
        "kind": ["idle"] * early.size,
        "label": ["has nothing left to do"] * early.size,
        "microbatch": np.full(early.size, -1),
        "start_s": start[early],
        "duration_s": timed.makespan - start[early],
    }
