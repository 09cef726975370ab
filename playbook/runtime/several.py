"""Several runs of strategies as one job: the ranks stay, and one after the other is reported."""

from collections.abc import Sequence
from typing import Any

from playbook.runtime.rank import emit
from playbook.runtime.strategy_run import StrategyRun, run_on_rank


def run_several(runs: Sequence[StrategyRun]) -> dict[str, Any]:
    """Run strategies in turn on this rank.

    An event of kind "run" with the place in `runs` as its name stands before the events of each.

    Returns
    -------
    dict
        `runs`, what each returned without its tables, and `tables`, the rows of all.
    """
    returned, tables = [], {}
    for place, run in enumerate(runs):
        emit("run", str(place))
        result = run_on_rank(run)
        for name, rows in result.pop("tables", {}).items():
            tables.setdefault(name, []).extend(rows)
        returned.append(result)
    return {"runs": returned, "tables": tables}
