"""Memory of a real step by term: the ledger of storages everywhere, the allocator's own numbers on a GPU."""

from dataclasses import dataclass, replace
from typing import Any

import torch

from playbook.runtime.record import Record
from playbook.runtime.traced_walk import TracedWalk, walk
from playbook.tables import TERMS

TRACKED, OUTSIDE = "tracked:gloo", ("context", "reserved_unused")


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The peak of one rank's step.

    Parameters
    ----------
    peak_bytes
        Most bytes that were handed out at once.
    reserved_bytes
        What the allocator held for it; as much as the peak where there is no caching allocator.
    device_bytes
        The same with the driver's context; as above on a CPU.
    instant, op
        When: phase and owner, and the id of that module.
    terms
        Bytes of each term at the peak; without `context` and `reserved_unused` they add up to `peak_bytes`.
    source
        Where the numbers come from.
    """

    peak_bytes: int
    reserved_bytes: int
    device_bytes: int
    instant: str
    op: str
    terms: dict[str, int]
    source: str

    def summary(self) -> dict[str, Any]:
        """Return the keys that the command line prints."""
        return {
            "peak_bytes": self.peak_bytes,
            "reserved_bytes": self.reserved_bytes,
            "device_bytes": self.device_bytes,
            "instant": self.instant,
            "terms": [{"term": term, "bytes": size} for term, size in self.terms.items()],
            "source": self.source,
        }

    def rows(self, scenario: str) -> list[dict[str, Any]]:
        """Return the rows of the memory table, one a term."""
        common = {
            "scenario": scenario,
            "op": self.op,
            "instant": self.instant,
            "source": self.source,
            "formula": "",
        }
        return [{**common, "term": term, "bytes": size} for term, size in self.terms.items()]


def tracked_memory(record: Record) -> Memory:
    """Read the peak off a recorded step: every storage that Python saw, by term.

    Raises
    ------
    ValueError
        If the step was recorded without a ledger.
    """
    levels = walk(record)
    peak = levels.peak_bytes
    return Memory(
        peak_bytes=peak,
        reserved_bytes=peak,
        device_bytes=peak,
        instant=levels.instant,
        op=op_at_peak(levels),
        terms=levels.terms,
        source=TRACKED,
    )


def op_at_peak(levels: TracedWalk) -> str:
    """Id of the module at work at the peak."""
    place = levels.places[levels.peak_event]
    return "" if place is None else f"m{place.microbatch}/{place.phase}/{place.owner}"


class Allocator:
    """The CUDA allocator's own peak of a step.

    Counts from `start` to `stop`; other processes on the same GPU are not in its numbers, but in the
    context's.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def start(self) -> None:
        """Forget earlier peaks."""
        torch.cuda.synchronize(self.device)
        torch.cuda.reset_peak_memory_stats(self.device)

    def stop(self, tracked: Memory, source: str) -> Memory:
        """Return the allocator's peak, with the ledger's terms; what the ledger did not see is workspace.

        Libraries' workspaces (cuBLAS) and buffers made in C++ are handed out by the allocator and pass Python
        by.
        """
        torch.cuda.synchronize(self.device)
        peak = torch.cuda.max_memory_allocated(self.device)
        reserved = torch.cuda.max_memory_reserved(self.device)
        free, total = torch.cuda.mem_get_info(self.device)
        context = max(0, total - free - torch.cuda.memory_reserved(self.device))
        terms = {**fitted(tracked.terms, peak), "context": context, "reserved_unused": reserved - peak}
        terms = {term: terms[term] for term in TERMS if terms.get(term)}
        device = reserved + context
        return replace(
            tracked, peak_bytes=peak, reserved_bytes=reserved, device_bytes=device, terms=terms, source=source
        )


def fitted(terms: dict[str, int], peak_bytes: int) -> dict[str, int]:
    """Make terms add up to a peak: what is missing is workspace, what is too much comes off the temporaries.

    Examples
    --------
    >>> fitted({"parameters": 60, "temporary": 20}, 100)
    {'parameters': 60, 'temporary': 20, 'workspace': 20}
    >>> fitted({"parameters": 60, "temporary": 20}, 75)
    {'parameters': 60, 'temporary': 15}
    """
    missing = peak_bytes - sum(terms.values())
    if missing >= 0:
        return {**terms, "workspace": terms.get("workspace", 0) + missing} if missing else dict(terms)
    largest_first = sorted(terms, key=lambda term: (term != "temporary", -terms[term]))
    left = dict(terms)
    for term in largest_first:
        taken = min(left[term], -missing)
        left[term] -= taken
        missing += taken
    return left
