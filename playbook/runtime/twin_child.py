"""The twin's process: read a request, take the step on the GPU, write the result. Started by `twin`."""

import sys
from pathlib import Path
from typing import Any

from playbook.runtime.child import answer
from playbook.runtime.twin_scope import NO_GPU, check_room
from playbook.spec import Scenario


def asked_twin(asked: dict[str, Any]) -> dict[str, Any]:
    """Take the twin of a request."""
    return taken(**{**asked, "scenario": Scenario.from_json(asked["scenario"])})


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
        raise ValueError(NO_GPU)
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
    sys.exit(answer(asked_twin, Path(sys.argv[1]), Path(sys.argv[2])))
