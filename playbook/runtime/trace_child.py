"""The tracing process: read a request, run the step on fake tensors, write the result. Started by `trace`."""

import sys
from pathlib import Path
from typing import Any

import numpy as np

from playbook.runtime.child import answer
from playbook.spec import Scenario


def traced(asked: dict[str, Any]) -> dict[str, Any]:
    """Trace one rank of a scenario: ids and payloads of the rows, and the levels of memory at each."""
    from playbook.runtime.trace_step import record_scenario
    from playbook.runtime.traced_walk import walk

    record = record_scenario(Scenario.from_json(asked["scenario"]), asked["rank"])
    events = np.array([row.event for row in record.rows])
    return {
        "ids": record.ids,
        "payload_bytes": [row.payload_bytes for row in record.rows],
        "levels": walk(record).highest(events).tolist(),
    }


if __name__ == "__main__":
    sys.exit(answer(traced, Path(sys.argv[1]), Path(sys.argv[2])))
