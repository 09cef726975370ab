"""Prediction against what was traced or measured: a join on ids, and the numbers side by side.

The match rate is joined / (predicted ∪ observed) at operation level, after the one skip list of
`program.ids`; the whole optimizer step is one id. A source that sees only modules joins at their level, one
that saw only communication joins on the predicted collectives alone.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from playbook.observed import OUTSIDE, Observed, kept, observed_in
from playbook.predict import TrainingMemory, program
from playbook.program.step import Program
from playbook.program.walk import MemoryWalk
from playbook.spec import Scenario
from playbook.tables import TERMS

if TYPE_CHECKING:
    from pandas import DataFrame

COLUMNS = ("quantity", "unit", "formula", "traced", "measured", "difference")


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A prediction joined with one or two observations.

    Parameters
    ----------
    predicted
        Payload bytes by id, after the skip list.
    observed
        The same of the first source that has ids, empty if none has.
    level
        "operation", "collective" or "module": what the sources let us join on; "memory" if they have no ids.
    quantities
        Rows of `table`.
    """

    predicted: Mapping[str, int] = field(repr=False)
    observed: Mapping[str, int] = field(repr=False)
    level: str
    quantities: tuple[dict[str, Any], ...] = field(repr=False)

    @cached_property
    def joined(self) -> tuple[str, ...]:
        """Ids of both sides, in predicted order."""
        return tuple(text for text in self.predicted if text in self.observed)

    @property
    def match_rate(self) -> float:
        """Joined ids over all ids of either side; 1.0 where neither side has any."""
        union = len(self.predicted) + len(self.observed) - len(self.joined)
        return len(self.joined) / union if union else 1.0

    @property
    def only_predicted(self) -> tuple[str, ...]:
        """Ids that were predicted and not seen."""
        return tuple(text for text in self.predicted if text not in self.observed)

    @property
    def only_observed(self) -> tuple[str, ...]:
        """Ids that were seen and not predicted."""
        return tuple(text for text in self.observed if text not in self.predicted)

    @property
    def payload_mismatches(self) -> tuple[tuple[str, int, int], ...]:
        """Joined ids whose payloads differ: id, predicted bytes, observed bytes."""
        pairs = ((text, self.predicted[text], self.observed[text]) for text in self.joined)
        return tuple(pair for pair in pairs if pair[1] != pair[2])

    @property
    def table(self) -> "DataFrame":
        """Quantities side by side: formula, traced, measured, and the last one's difference from the
        formula."""
        import pandas as pd

        return pd.DataFrame(list(self.quantities), columns=list(COLUMNS))

    @property
    def operations(self) -> "DataFrame":
        """Every id of either side, with its payload on each."""
        import pandas as pd

        ids = [*self.predicted, *self.only_observed]
        sides = {
            "formula": [self.predicted.get(text) for text in ids],
            "observed": [self.observed.get(text) for text in ids],
        }
        return pd.DataFrame({"op": ids, **sides}).astype({"formula": "Int64", "observed": "Int64"})

    def __repr__(self) -> str:
        return (
            f"Comparison({self.level} level: {len(self.joined)} of {len(self.predicted)} predicted and "
            f"{len(self.observed)} observed ids joined, match rate {self.match_rate:.2%}, "
            f"{len(self.payload_mismatches)} payloads differ)"
        )


def compare(prediction: Scenario | Program | TrainingMemory, *sources: Any, rank: int = 0) -> Comparison:
    """Join a prediction with what was traced or measured.

    Parameters
    ----------
    prediction
        A scenario, one rank's program, or its predicted memory.
    sources
        One or more of: a trace, a run, another program, a traffic table, ids or a mapping from ids to
        payload bytes.
    rank
        Rank of the scenario, and of the run's tables.

    Raises
    ------
    TypeError
        If the prediction or a source is of no kind that is known.
    """
    expected = predicted_program(prediction, rank)
    seen = [observed_in(source, expected.rank) for source in sources]
    with_ids = next((source for source in seen if source.ids), None)
    level = with_ids.level if with_ids else "operation"
    if with_ids is None and any(source.level == "memory" for source in seen):
        level = "memory"
    predicted = narrowed(kept(payloads(expected)), level, with_ids)
    return Comparison(
        predicted=predicted,
        observed=with_ids.ids if with_ids else {},
        level=level,
        quantities=tuple(quantities(expected, seen)),
    )


def predicted_program(prediction: object, rank: int) -> Program:
    """Return the program of what may be given as a prediction."""
    if isinstance(prediction, Program):
        return prediction
    if isinstance(prediction, TrainingMemory):
        return prediction.walk.program
    if isinstance(prediction, Scenario):
        return program(prediction, rank)
    raise TypeError(
        f"prediction of type {type(prediction).__name__}; give a Scenario, a Program or a TrainingMemory"
    )


def payloads(source: Program) -> dict[str, int]:
    """Payload bytes of each id of a program, in order of issue."""
    return dict(zip(source.ids(), source.rows.payload.tolist(), strict=True))


def narrowed(predicted: dict[str, int], level: str, source: Observed | None) -> dict[str, int]:
    """The part of the predicted ids that a source of this level could have seen."""
    if level == "memory":
        return {}
    if level == "collective" and source is not None:
        return {text: size for text, size in predicted.items() if source.could_see(text)}
    if level == "module" and source is not None:
        return under_modules(predicted, source.ids)
    return predicted


def under_modules(predicted: Mapping[str, int], modules: Iterable[str]) -> dict[str, int]:
    """Fold ids to the innermost of the given modules that holds each; what lies in none keeps its own
    module."""
    known = set(modules)
    folded: dict[str, int] = {}
    for text, size in predicted.items():
        module = text.rpartition("/")[0]
        found = module
        while found not in known and "." in found.rpartition("/")[2]:
            found = found.rpartition(".")[0]
        name = found if found in known else module
        folded[name] = folded.get(name, 0) + size
    return folded


def quantities(expected: Program, seen: Sequence[Observed]) -> list[dict[str, Any]]:
    """Rows of the table: the peak by term, then payloads by axis and collective."""
    walk, traffic = expected.memory(), expected.traffic()
    rows = [row("peak", "bytes", walk.peak_bytes, seen, "peak_bytes")]
    observed_terms = {term for source in seen for term in source.terms}
    for term in TERMS:
        if term not in OUTSIDE and (term in walk.terms or term in observed_terms):
            rows.append(row(term, "bytes", walk.terms.get(term, 0), seen, "terms", term))
    instants = predicted_instants(walk) if any(source.instants for source in seen) else {}
    rows += [row(words_of(name), "bytes", size, seen, "instants", name) for name, size in instants.items()]
    names = sorted({*traffic.by_collective, *(name for source in seen for name in source.traffic)})
    rows += [
        row(name, "payload bytes", traffic.by_collective.get(name, 0), seen, "traffic", name)
        for name in names
    ]
    return rows


def predicted_instants(walk: MemoryWalk) -> dict[str, int]:
    """Bytes between steps, and the most in each phase."""
    phases = {"forward": "F", "backward": "B", "optimizer": "O"}
    return {
        "between steps": sum(walk.state.values()),
        **{name: walk.peak_of(letter) for name, letter in phases.items()},
    }


def words_of(instant: str) -> str:
    """Name of an instant's row, which no term has: "peak in forward"."""
    return instant if instant == "between steps" else f"peak in {instant}"


def row(
    quantity: str, unit: str, formula: int, seen: Sequence[Observed], side: str, key: str | None = None
) -> dict[str, Any]:
    """One quantity on every side; the difference is that of the last side that has it, relative to the
    formula."""
    sides: dict[str, Any] = {"traced": None, "measured": None}
    for source in seen:
        value = getattr(source, side)
        if key is not None:
            value = value.get(key, 0) if value else None
        if value is not None:
            sides["traced" if source.source == "traced" else "measured"] = value
    last = sides["measured"] if sides["measured"] is not None else sides["traced"]
    difference = last / formula - 1 if last is not None and formula else None
    return {"quantity": quantity, "unit": unit, "formula": formula, **sides, "difference": difference}
