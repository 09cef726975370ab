"""Twins: the real step of one rank of any world on one GPU, with real allocations, kernels and overlap.

Needs no torch itself. A child process runs the strategy's library code over a process group whose collectives
take the modelled time (`playbook.runtime.twin_step`), so that nothing of it stays in the caller's process.
"""

import json
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import playbook
from playbook.runtime.environment import rank_environment
from playbook.runtime.twin_result import Twin
from playbook.runtime.twin_scope import check_twin, worst_rank
from playbook.spec import Scenario
from playbook.spec.rules import positive, text, whole

CHILD = "playbook.runtime.twin_child"

__all__ = ["Twin", "twin"]


def twin(
    scenario: Scenario,
    rank: int | None = None,
    network: str = "modelled",
    *,
    build: str | None = None,
    deadline_s: float = 600.0,
) -> Twin:
    """Take the real step of one rank on this machine's GPU, whatever the size of its world.

    Parameters
    ----------
    scenario
        What to run. A framework of "torch" or "textbook" runs the reference transformer, "transformers"
        Hugging Face's code for it under FSDP2.
    rank
        Which rank to be; None is the one that is predicted to need most.
    network
        "modelled": a collective takes what the scenario's cluster would need for it, by latency and
        bandwidth; "off": no time.
    build
        `FILE.py:FUNCTION` that returns a module of your own, to run in the place of the scenario's model
        under its dp and zero: tokens (B, S) in, logits (B, S, V) out.
    deadline_s
        Seconds after which the child process is killed.

    Returns
    -------
    Twin
        Peaks by instant, allocated and reserved, seconds of the step, communication that nothing hides.

    Raises
    ------
    ValueError
        If no twin runs this scenario, there is no GPU, or the predicted need does not fit.
    TimeoutError
        If the child has not finished by the deadline.
    RuntimeError
        If the child failed.

    Notes
    -----
    Real: allocations, kernels, streams, prefetch, overlap. Modelled: how long a collective takes, and that
    NCCL's kernels keep some multiprocessors from compute. Other ranks are taken to be equal to this one.
    """
    if not isinstance(scenario, Scenario):
        raise TypeError(f"twin takes a Scenario, not a {type(scenario).__name__}")
    network = check_twin(scenario, network)
    if build is not None:
        text("build", build)
    rank = (0 if build else worst_rank(scenario)) if rank is None else whole("rank", rank, least=0)
    scenario.layout.coordinates(rank)  # refuses a rank outside the world
    asked = {"scenario": scenario.to_json(), "rank": rank, "network": network, "build": build}
    with tempfile.TemporaryDirectory(prefix="playbook-twin-") as folder:
        found = _run_child(asked, positive("deadline_s", deadline_s), Path(folder))
    found["repeats_s"] = tuple(found["repeats_s"])
    return Twin(scenario=scenario, rank=rank, network=network, **found)


def _run_child(asked: dict[str, Any], deadline_s: float, folder: Path) -> dict[str, Any]:
    """Start the child, wait for it, and return what it wrote; it is gone when this returns or raises."""
    request, result, log = (folder / name for name in ("request.json", "result.json", "log"))
    request.write_text(json.dumps(asked))
    environment = rank_environment(threads=2, loopback=True)
    home = str(Path(playbook.__file__).resolve().parent.parent)
    environment["PYTHONPATH"] = ":".join(filter(None, (home, environment.get("PYTHONPATH"))))
    with log.open("wb") as output:
        # The child ends when its standard input closes, so it cannot outlive this process.
        child = subprocess.Popen(
            [sys.executable, "-m", CHILD, str(request), str(result)],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            env=environment,
        )
        try:
            code = child.wait(timeout=deadline_s)
        except subprocess.TimeoutExpired:
            raise TimeoutError(
                f"the twin of rank {asked['rank']} was not done after {deadline_s:g} s; give a longer "
                "deadline_s, or fewer layers or micro-batches"
            ) from None
        finally:
            child.kill()
            child.wait()
            if child.stdin is not None:
                child.stdin.close()
    if code == 0 and result.exists():
        return json.loads(result.read_text())
    raise _failure(code, result, log)


def _failure(code: int, result: Path, log: Path) -> Exception:
    """Say in one line why the child failed: its own error, the signal that ended it, or its last words."""
    if result.exists():
        error = json.loads(result.read_text())
        if error["kind"] == "ValueError":
            return ValueError(error["message"])
        return RuntimeError(f"the twin failed: {error['kind']}: {error['message']}")
    if code < 0:
        return RuntimeError(f"the twin's process was ended by {signal.Signals(-code).name}")
    lines = log.read_text(errors="replace").strip().splitlines()
    return RuntimeError(f"the twin's process ended with code {code}: {lines[-1] if lines else 'no word'}")
