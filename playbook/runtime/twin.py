"""Twins: the real step of one rank of any world on one GPU, with real allocations, kernels and overlap.

Needs no torch itself. A child process runs the strategy's library code over a process group whose collectives
take the modelled time (`playbook.runtime.twin_step`), so that nothing of it stays in the caller's process.
"""

import tempfile
from pathlib import Path

from playbook.runtime.child import ask_child
from playbook.runtime.twin_result import Twin
from playbook.runtime.twin_scope import check_gpu, check_twin, worst_rank
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
        Hugging Face's code for it under FSDP2; its experts get as many tokens each, in turn.
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
    check_gpu()
    asked = {"scenario": scenario.to_json(), "rank": rank, "network": network, "build": build}
    late = (
        f"the twin of rank {rank} was not done after {deadline_s:g} s; give a longer deadline_s, or "
        f"fewer layers "
        "or micro-batches"
    )
    with tempfile.TemporaryDirectory(prefix="playbook-twin-") as folder:
        found = ask_child(
            CHILD,
            asked,
            Path(folder),
            positive("deadline_s", deadline_s),
            what="the twin",
            late=late,
            threads=2,
        )
    found["repeats_s"] = tuple(found["repeats_s"])
    return Twin(scenario=scenario, rank=rank, network=network, build=build, **found)
