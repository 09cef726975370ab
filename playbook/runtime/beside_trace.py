"""Traces as jobs of a pool, so that they can be cancelled as any other job; alone, or beside the real step.

The pool's rank 0 starts the tracing process, which ends with it; the other ranks have nothing to do.
"""

from typing import Any

from playbook.runtime.rank import current_phase, emit, here
from playbook.runtime.strategy_run import StrategyRun, run_on_rank
from playbook.runtime.trace import trace
from playbook.spec import Scenario

POINTS = 160
"""Points of the memory curve that is handed back."""


def trace_on_rank(scenario: Scenario, of: int | None = None) -> dict[str, Any] | None:
    """Trace a rank of a scenario, by default the worst, on rank 0 of the pool; None on its other ranks.

    Returns
    -------
    dict
        `peak_bytes`, `instant`, `terms` (term → bytes at the peak), `totals` (bytes along the step, thinned)
        and `peak_index` among them.
    """
    if here().rank:
        return None
    current_phase("tracing")
    traced = trace(scenario, of)
    curve = traced.curve(POINTS)
    return {
        "peak_bytes": traced.peak_bytes,
        "instant": traced.instant,
        "terms": {row["term"]: row["bytes"] for row in traced.terms},
        "totals": curve.levels.sum(axis=1).tolist(),
        "peak_index": curve.peak_index,
    }


def run_beside_trace(run: StrategyRun) -> dict[str, Any]:
    """Run a strategy on this rank, then trace the same scenario.

    An event of kind "stepped" carries the memory of the step as soon as it is known. What is returned is that
    of the run, and `trace`: what `trace_on_rank` returned, or why there is no trace, in words.
    """
    result = run_on_rank(run)
    emit("stepped", "memory", **result["memory"])
    try:
        result["trace"] = trace_on_rank(run.scenario)
    except (ValueError, TimeoutError) as refused:
        result["trace"] = str(refused)
    return result
