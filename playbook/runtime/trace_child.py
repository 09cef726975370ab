"""The tracing process: read a request, run the step on fake tensors, write the result. Started by `trace`."""

import json
import os
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

import numpy as np

from playbook.spec import Scenario


def main(request: Path, result: Path) -> int:
    """Answer one request; the exit code says whether the result is a trace or an error."""
    threading.Thread(target=end_with_parent, daemon=True).start()
    asked = json.loads(request.read_text())
    try:
        found = traced(Scenario.from_json(asked["scenario"]), asked["rank"])
    except Exception as error:
        traceback.print_exc()
        first_line = next(iter(str(error).splitlines()), "")
        result.write_text(json.dumps({"kind": type(error).__name__, "message": first_line}))
        return 1
    result.write_text(json.dumps(found))
    return 0


def traced(scenario: Scenario, rank: int) -> dict[str, Any]:
    """Trace one rank: ids and payloads of the rows, and the levels of memory at each."""
    from playbook.runtime.trace_step import record_scenario
    from playbook.runtime.traced_walk import walk

    record = record_scenario(scenario, rank)
    events = np.array([row.event for row in record.rows])
    return {
        "ids": record.ids,
        "payload_bytes": [row.payload_bytes for row in record.rows],
        "levels": walk(record).highest(events).tolist(),
    }


def end_with_parent() -> None:
    """End this process when the one that started it closes the pipe to it, or ends itself."""
    while os.read(0, 1):  # the buffered reader would hold a lock at the end of the interpreter
        pass
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
