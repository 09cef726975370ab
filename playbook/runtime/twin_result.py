"""What a twin gives: memory by instant and by term, seconds of the step, and what communication adds."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from playbook.spec import Scenario
from playbook.tables import table
from playbook.units import gb, seconds

if TYPE_CHECKING:
    from pandas import DataFrame

INSIDE = ("forward", "backward", "optimizer")
"""Instants that are the peak of a phase; the others are what is left between two phases."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Twin:
    """The real step of one rank, taken alone on one GPU.

    Parameters
    ----------
    scenario
        Whose step.
    rank
        Which rank.
    network
        "modelled" or "off".
    instants
        Rows of instant, allocated_bytes and reserved_bytes: the peak of each phase and what is left between
        them, the most over the micro-batches.
    terms
        Rows of term and bytes at the peak; without `context` and `reserved_unused` they add up to it.
    op
        Id of the module at work at the peak.
    context_bytes
        What the process took from the GPU beside the allocator.
    repeats_s
        Seconds of each timed step.
    compute_s
        Median seconds of the step when collectives take no time.
    seconds
        Median seconds of the step.
    machine
        GPU and version of torch.
    build
        Where the module that ran came from, if it was the user's own.
    """

    scenario: Scenario
    rank: int
    network: str
    instants: list[dict[str, Any]]
    terms: list[dict[str, Any]]
    op: str
    context_bytes: int
    repeats_s: tuple[float, ...]
    compute_s: float
    seconds: float
    machine: str
    build: str | None = None

    source = "twin"

    def __repr__(self) -> str:
        return (
            f"Twin({self.code} on {self.machine}: {self.scenario.model.name}, rank {self.rank} of "
            f"{self.scenario.world}; peak {gb(self.peak_bytes)} in {self.instant}; "
            f"step {seconds(self.seconds)}, of it {seconds(self.exposed_s)} waiting for messages)"
        )

    @property
    def code(self) -> str:
        """Whose code ran."""
        if self.build is not None:
            return self.build
        return "Hugging Face's code" if self.scenario.framework == "transformers" else "PyTorch's code"

    @cached_property
    def by_instant(self) -> Mapping[str, int]:
        """Allocated bytes by instant."""
        return {row["instant"]: row["allocated_bytes"] for row in self.instants}

    @property
    def peak_bytes(self) -> int:
        """Most bytes that the allocator had handed out at once."""
        return max(self.by_instant.values())

    @property
    def reserved_bytes(self) -> int:
        """Most bytes that the allocator had taken from the driver."""
        return max(row["reserved_bytes"] for row in self.instants)

    @property
    def device_bytes(self) -> int:
        """The same with the driver's context: one process of one rank, without NCCL's buffers."""
        return self.reserved_bytes + self.context_bytes

    @property
    def instant(self) -> str:
        """The phase of the peak."""
        return max((name for name in self.by_instant if name in INSIDE), key=self.by_instant.__getitem__)

    @property
    def exposed_s(self) -> float:
        """Seconds that communication adds to the step: with its time, less without it, at least 0."""
        return max(0.0, self.seconds - self.compute_s)

    @property
    def coordinates(self) -> dict[str, int]:
        """Place of the rank on each axis."""
        return self.scenario.layout.coordinates(self.rank)

    @property
    def table(self) -> "DataFrame":
        """The memory table at the peak, one row a term."""
        common = {
            "scenario": self.scenario.model.name,
            "rank": self.rank,
            "op": self.op,
            "instant": self.instant,
            "formula": "",
            "source": self.source,
        }
        return table("memory", [{**common, **row} for row in self.terms])
