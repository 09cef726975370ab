"""What a source saw of a step, in the form that `compare` joins: ids with payloads, peak by term, traffic."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from playbook.program.ids import OPTIMIZER, SKIPPED_OPERATIONS, parse
from playbook.program.step import Program

OUTSIDE = ("reserved_unused", "context")
"""Terms that the allocator does not hand out, so that they are no part of a peak."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """One source's view.

    Parameters
    ----------
    source
        Where it comes from, one of the tables' sources.
    ids
        Payload bytes by id, after the skip list.
    peak_bytes, terms
        The peak and what it is made of, if the source saw memory.
    traffic
        Payload bytes by `collective@axis`.
    instants
        Most bytes in a phase, or left behind it: forward, backward, optimizer, between steps.
    """

    source: str
    ids: Mapping[str, int] = field(default_factory=dict)
    peak_bytes: int | None = None
    terms: Mapping[str, int] = field(default_factory=dict)
    traffic: Mapping[str, int] = field(default_factory=dict)
    instants: Mapping[str, int] = field(default_factory=dict)

    @property
    def level(self) -> str:
        """What its ids name: operations, collectives only, or modules only; "memory" if it has none."""
        if not self.ids and self.instants:
            return "memory"
        parts = [parse(text) for text in self.ids]
        if all(not part.op for part in parts):
            return "module"
        return "collective" if all(part.axis for part in parts) else "operation"

    def could_see(self, text: str) -> bool:
        """Whether a source of collectives could have seen an id; one without receives sees a message as its
        send."""
        part = parse(text)
        if part.axis is None:
            return False
        return part.op != "receive" or any(parse(mine).op == "receive" for mine in self.ids)


def kept(payloads: Mapping[str, int]) -> dict[str, int]:
    """Leave out layout operations and copies; the optimizer's operations are one id.

    Examples
    --------
    >>> kept({"m0/F/norm/view#0": 0, "m0/F/norm/mul#0": 0, "m-1/O//add#0": 0})
    {'m0/F/norm/mul#0': 0, 'm-1/O//optimizer#0': 0}
    """
    found: dict[str, int] = {}
    for text, size in payloads.items():
        part = parse(text)
        if part.axis is None and part.phase == "O" and part.op:
            found.setdefault(OPTIMIZER, 0)
        elif part.axis is not None or part.op not in SKIPPED_OPERATIONS:
            found[text] = size
    return found


def observed_in(source: Any, rank: int) -> Observed:
    """Read a trace, a run, a program, a traffic table, ids, or a mapping from ids to payloads.

    Raises
    ------
    TypeError
        If the source is none of these.
    """
    if isinstance(source, Observed):
        return source
    if isinstance(source, Program):
        return of_program(source)
    if isinstance(source, Mapping):
        return of_ids(source)
    if hasattr(source, "columns") and hasattr(source, "itertuples"):
        return of_tables(source, None, rank)
    if hasattr(source, "by_instant"):
        return of_twin(source)
    if hasattr(source, "payloads"):
        return of_trace(source)
    if hasattr(source, "memory") and hasattr(source, "traffic"):
        return of_tables(source.traffic, source.memory, rank)
    if isinstance(source, Iterable) and not isinstance(source, str):
        return of_ids(dict.fromkeys(map(str, source), 0))
    raise TypeError(
        f"cannot compare with a {type(source).__name__}; give a trace, a run, a program, a traffic table, "
        "ids, or a mapping from ids to payload bytes"
    )


def of_program(program: Program) -> Observed:
    """Another program, as if it had been seen."""
    walk, ids = program.memory(), program.ids()
    return Observed(
        source="simulated",
        ids=kept(dict(zip(ids, program.rows.payload.tolist(), strict=True))),
        peak_bytes=walk.peak_bytes,
        terms=walk.terms,
        traffic=program.traffic().by_collective,
    )


def of_ids(payloads: Mapping[str, int]) -> Observed:
    """Ids alone."""
    ids = kept(payloads)
    return Observed(source="traced", ids=ids, traffic=by_collective(ids))


def of_trace(trace: Any) -> Observed:
    """A trace: `payloads` by id, `peak_bytes` and `terms`."""
    ids = kept(trace.payloads)
    terms = (
        {row["term"]: row["bytes"] for row in trace.terms} if isinstance(trace.terms, list) else trace.terms
    )
    return Observed(
        source="traced", ids=ids, peak_bytes=trace.peak_bytes, terms=terms, traffic=by_collective(ids)
    )


def of_twin(twin: Any) -> Observed:
    """A twin: the peak, its terms, and memory by instant; it names no operations."""
    terms = {row["term"]: row["bytes"] for row in twin.terms if row["term"] not in OUTSIDE}
    return Observed(
        source=twin.source, peak_bytes=twin.peak_bytes, terms=terms, instants=dict(twin.by_instant)
    )


def of_tables(traffic: Any, memory: Any, rank: int) -> Observed:
    """A run's traffic and memory tables, as one rank saw them."""
    mine = traffic[traffic["rank"] == rank]
    ids = kept({row.op: int(row.payload_bytes) for row in mine.itertuples() if isinstance(row.op, str)})
    source = str(mine["source"].iloc[0]) if len(mine) else "measured:gloo"
    if memory is None or not len(memory):
        return Observed(source=source, ids=ids, traffic=by_collective(ids))
    terms = peak_terms(memory[memory["rank"] == rank])
    return Observed(
        source=source, ids=ids, peak_bytes=sum(terms.values()), terms=terms, traffic=by_collective(ids)
    )


def peak_terms(memory: Any) -> dict[str, int]:
    """Terms of the instant that has most bytes in a rank's memory table, without what no allocator hands
    out."""
    inside = memory[~memory["term"].isin(OUTSIDE)]
    instants = [part for _, part in inside.groupby("instant", dropna=False)]
    top = max(instants, key=lambda part: part["bytes"].sum(), default=inside)
    return {str(term): int(size) for term, size in top.groupby("term")["bytes"].sum().items()}


def by_collective(payloads: Mapping[str, int]) -> dict[str, int]:
    """Payload bytes by `collective@axis`."""
    sums: dict[str, int] = {}
    for text, size in payloads.items():
        part = parse(text)
        if part.axis is not None:
            name = f"{part.op}@{part.axis}"
            sums[name] = sums.get(name, 0) + size
    return sums
