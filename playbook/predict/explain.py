"""Backwards: which tensor of a step has the size of an allocation that failed, or would have it at which
length."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from playbook.predict.left_out import left_out, noted
from playbook.predict.suspects import Suspect, suspects
from playbook.predict.unbuilt import refuse_unbuilt
from playbook.spec import Scenario
from playbook.spec.byte_sizes import read_size
from playbook.spec.rules import positive
from playbook.units import binary_size, counted, percent, significant, thousands

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
        return f"Explanation({noted(self.sentence, self.note)})"

    @property
    def note(self) -> str:
        """What of the model has no tensor here, in words; else empty."""
        return left_out(self.scenario.model)

    @property
    def nearest(self) -> Suspect:
        """The tensor nearest in size; one alone before several together."""
        return self.suspects[0]

    @property
    def matches(self) -> tuple[Suspect, ...]:
        """Tensors that have this size up to the rounding of a message."""
        return tuple(one for one in self.suspects if agrees(one, self.bytes))

    @property
    def sequence(self) -> int | None:
        """Tokens a sequence at which the nearest tensor has this size; None if it does not grow with them."""
        return self.nearest.sequence_of(self.bytes, self.scenario.workload.sequence)

    @property
    def micro_batch(self) -> float | None:
        """Sequences a micro-batch at which it has, not rounded; None if it does not grow with them."""
        return self.nearest.micro_batch_of(self.bytes, self.scenario.workload.micro_batch)

    @property
    def sentence(self) -> str:
        """The answer in words."""
        asked, found = binary_size(self.bytes), self.nearest
        what = f"{found.name} ({found.formula}, {found.instant})"
        if self.matches:
            off = percent(found.bytes / self.bytes - 1, signed=True)
            others = len(self.matches) - 1
            has = "has" if others == 1 else "have"
            more = f"; {counted(others, 'other')} of the step {has} it too" if others else ""
            return f"{asked} is the size of {what}: {binary_size(found.bytes)}, {off}{more}"
        start = f"no tensor of this step has {asked}; nearest is {what} with {binary_size(found.bytes)}"
        if self.sequence is None:
            return f"{start}, which does not grow with the tokens"
        work = self.scenario.workload
        tokens = f"sequence={thousands(self.sequence)} instead of {thousands(work.sequence)}"
        doubt = ": more tokens reached it than given (packing, no truncation)" if self.longer else ""
        return f"{start}; it would have this size at {tokens}{self.batch_words}{doubt}"

    @property
    def batch_words(self) -> str:
        """The micro-batch that explains the bytes, or why none does; empty where it would be below one."""
        exact = self.micro_batch
        if exact is None or exact < 1:
            return ""
        whole = round(exact)
        if abs(exact - whole) <= SAME * exact:
            return f", or micro_batch={whole}"
        return (
            f" (micro_batch={math.ceil(exact)} is the first that asks for as much: {significant(exact)} "
            "sequences' worth is no whole number, so longer sequences are likelier)"
        )

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


def explain_allocation(bytes: float | str, s: Scenario) -> Explanation:  # noqa: A002  # the unit is the name
    """Name the tensors whose size is nearest to an allocation that failed.

    Parameters
    ----------
    bytes
        What the message says could not be allocated: bytes, or a text with its unit ("49GiB" is 49 · 2³⁰).
    s
        The scenario that is believed to run.

    Notes
    -----
    Every tensor of the program of the first and the last pipeline rank is compared, and what a layer keeps
    also for all layers together. Where no size agrees, a tensor that grows with the tokens tells how many
    would explain the message: bytes / size for one that grows with them, its root for a score matrix. Of
    tensors of one size those that grow with tokens come first, those that are there between steps last.

    Raises
    ------
    ValueError
        If the bytes are not above 0, their unit is not known or no program models the scenario yet.
    """
    refuse_unbuilt(s)
    asked = math.floor(positive("bytes", read_size(bytes) if isinstance(bytes, str) else bytes))
    ordered = sorted(suspects(s), key=lambda one: likelihood(one, asked))
    alone = [one for one in ordered if not one.together]
    sums = [one for one in ordered if one.together]
    same = [one for one in sums if agrees(one, asked)]
    if same and not agrees(alone[0], asked):
        ordered = [*same, *alone, *(one for one in sums if one not in same)]
    return Explanation(scenario=s, bytes=asked, suspects=tuple(ordered))


def agrees(one: Suspect, asked: int) -> bool:
    """Whether a tensor has a size up to the rounding of a message."""
    return abs(one.bytes - asked) <= SAME * asked


def likelihood(one: Suspect, asked: int) -> tuple[bool | float, ...]:
    """Order of suspects: single ones, those of the size, the nearest; of equals those that grow with tokens,
    then those born inside a step.
    """
    distance = abs(math.log(one.bytes / asked))
    nearness = (not agrees(one, asked), math.ceil(distance / SAME))
    return one.together, *nearness, not one.tokens_power, one.state, distance
