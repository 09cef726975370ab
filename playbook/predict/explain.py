"""Backwards: which tensor of a step has the size of an allocation that failed, or would have it at which
length."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from playbook.predict.suspects import Suspect, suspects
from playbook.predict.unbuilt import refuse_unbuilt
from playbook.spec import Scenario
from playbook.spec.rules import positive
from playbook.units import gib, percent, significant, thousands

if TYPE_CHECKING:
    from pandas import DataFrame

SAME = 0.01
"""Difference up to which a size is that of a tensor: messages print two decimals."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Explanation:
    """What may have asked for so many bytes.

    Parameters
    ----------
    scenario, bytes
        What was asked.
    suspects
        Tensors of the step, nearest in size first.
    """

    scenario: Scenario
    bytes: int
    suspects: tuple[Suspect, ...]

    def __repr__(self) -> str:
        return f"Explanation({self.sentence})"

    @property
    def nearest(self) -> Suspect:
        """The tensor nearest in size; one alone before several together."""
        return self.suspects[0]

    @property
    def matches(self) -> tuple[Suspect, ...]:
        """Tensors that have this size up to the rounding of a message."""
        return tuple(one for one in self.suspects if abs(one.bytes - self.bytes) <= SAME * self.bytes)

    @property
    def sequence(self) -> int | None:
        """Tokens a sequence at which the nearest tensor has this size; None if it does not grow with them."""
        return self.nearest.sequence_of(self.bytes, self.scenario.workload.sequence)

    @property
    def micro_batch(self) -> float | None:
        """Sequences a micro-batch at which it has; None if it does not grow with them."""
        return self.nearest.micro_batch_of(self.bytes, self.scenario.workload.micro_batch)

    @property
    def sentence(self) -> str:
        """The answer in words."""
        asked, found = gib(self.bytes), self.nearest
        what = f"{found.name} ({found.formula}, {found.instant})"
        if self.matches:
            off = percent(self.bytes / found.bytes - 1, signed=True)
            others = len(self.matches) - 1
            more = f"; {others} other{'s' * (others > 1)} of the step have it too" if others else ""
            return f"{asked} is the size of {what}: {gib(found.bytes)}, {off}{more}"
        start = f"no tensor of this step has {asked}; nearest is {what} with {gib(found.bytes)}"
        if self.sequence is None:
            return f"{start}, which does not grow with the tokens"
        work = self.scenario.workload
        tokens = f"sequence={thousands(self.sequence)} instead of {thousands(work.sequence)}"
        batch = f", or micro_batch={significant(self.micro_batch)}" if self.micro_batch else ""
        doubt = ": more tokens reached it than given (packing, no truncation)" if self.longer else ""
        return f"{start}; it would have this size at {tokens}{batch}{doubt}"

    @property
    def longer(self) -> bool:
        """Whether the nearest tensor must grow to explain the bytes."""
        return self.bytes > self.nearest.bytes

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One row a tensor, nearest in size first."""
        work = self.scenario.workload
        return [
            {
                "tensor": one.name,
                "term": one.term,
                "instant": one.instant,
                "bytes": one.bytes,
                "count": one.count,
                "formula": one.formula,
                "difference": one.bytes / self.bytes - 1,
                "sequence": one.sequence_of(self.bytes, work.sequence),
                "micro_batch": one.micro_batch_of(self.bytes, work.micro_batch),
            }
            for one in self.suspects
        ]

    @property
    def table(self) -> "DataFrame":
        """The rows as a table."""
        import pandas as pd

        return pd.DataFrame(self.rows)


def explain_allocation(bytes: float, s: Scenario) -> Explanation:  # noqa: A002  # the unit is the name
    """Name the tensors whose size is nearest to an allocation that failed.

    Parameters
    ----------
    bytes
        What the message says could not be allocated, in bytes (49 GiB is 49 · 2³⁰).
    s
        The scenario that is believed to run.

    Notes
    -----
    Every tensor of the program of the first and the last pipeline rank is compared, and what a layer keeps
    also for all layers together. Where no size agrees, a tensor that grows with the tokens tells how many
    would explain the message: bytes / size for one that grows with them, its root for a score matrix.

    Raises
    ------
    ValueError
        If the bytes are not above 0 or no program models the scenario yet.
    """
    refuse_unbuilt(s)
    asked = math.floor(positive("bytes", bytes))
    found = suspects(s)
    ordered = sorted(found, key=lambda one: (one.together, abs(math.log(one.bytes / asked))))
    alone = [one for one in ordered if not one.together]
    sums = [one for one in ordered if one.together]
    same = [one for one in sums if abs(one.bytes - asked) <= SAME * asked]
    if same and abs(alone[0].bytes - asked) > SAME * asked:
        ordered = [*same, *alone, *(one for one in sums if one not in same)]
    return Explanation(scenario=s, bytes=asked, suspects=tuple(ordered))
