"""The twin's process: read a request, take the step on the GPU, write the result. Started by `twin`."""

import json
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

from playbook.runtime.trace_child import end_with_parent
from playbook.runtime.twin_scope import check_room
from playbook.spec import Scenario


def main(request: Path, result: Path) -> int:
    """Answer one request; the exit code says whether the result is a twin or an error."""
    threading.Thread(target=end_with_parent, daemon=True).start()
    asked = json.loads(request.read_text())
    try:
        found = taken(**{**asked, "scenario": Scenario.from_json(asked["scenario"])})
    except Exception as error:
        traceback.print_exc()
        first_line = next(iter(str(error).splitlines()), "")
        result.write_text(json.dumps({"kind": type(error).__name__, "message": first_line}))
        return 1
    result.write_text(json.dumps(found))
    return 0


def taken(scenario: Scenario, rank: int, network: str, build: str | None) -> dict[str, Any]:
    """Take one twin on the first GPU.

    Raises
    ------
    ValueError
        If there is no GPU, or too little of it is free.
    """
    import torch

    from playbook.runtime.twin_clock import make_hold
    from playbook.runtime.twin_step import run_twin

    if not torch.cuda.is_available():
        raise ValueError(
            "there is no GPU that torch can use here, and a twin runs real kernels; pb.trace runs the same "
            "step on fake tensors, without one"
        )
    device = torch.device("cuda", 0)
    torch.cuda.set_device(device)
    if build is None:
        check_room(scenario, rank, torch.cuda.mem_get_info(device)[0])
    hold = make_hold(device)
    found = run_twin(scenario, rank, network=network, device=device, hold=hold, build=build, with_terms=True)
    machine = f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}"
    kept = ("instants", "terms", "op", "context_bytes", "repeats_s", "compute_s", "seconds")
    return {**{name: found[name] for name in kept}, "machine": machine}


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
