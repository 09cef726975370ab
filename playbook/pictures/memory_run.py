"""A real step's memory beside formula and trace.

Which small scenario stands in, and the three peaks by term.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np

from playbook.pictures.memory_groups import LEVELS, group_bytes
from playbook.pictures.memory_words import instant_words, stage_name
from playbook.pictures.words import amount, difference, row
from playbook.predict import training_memory
from playbook.spec import Scenario
from playbook.strategies import plan
from playbook.units import counted, size, thousands

MOST_RANKS = 8
MOST_SEQUENCE = 128
STRATEGIES = {0: "ddp", 3: "fsdp2"}
"""ZeRO stages that run on real ranks, and the strategy that does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StandIn:
    """The small scenario that real ranks run in place of the one shown."""

    strategy: str
    levers: Mapping[str, Any]
    """What the strategy's run is given beside its ranks."""
    scenario: Scenario
    """What is run, and what its formula and trace are of."""
    words: str


def stand_in(shown: Scenario) -> StandIn:
    """Choose what to run: `toy-15m` on few ranks, with strategy, recompute and recipe as shown.

    Raises
    ------
    ValueError
        If no strategy with this ZeRO stage runs on real ranks, or other axes are in use.
    """
    zero, layout = shown.layout.zero, shown.layout
    if layout.world != layout.dp:
        raise ValueError(
            f"tp={layout.tp}, pp={layout.pp}, cp={layout.cp}: Run takes a step of data-parallel "
            f"ranks; set these "
            "to 1, or run the strategy itself from Python, as in pool.submit('tp')"
        )
    if zero not in STRATEGIES:
        raise ValueError(f"zero={zero} does not run on real ranks yet; use zero=0 (DDP) or zero=3 (FSDP2)")
    strategy = STRATEGIES[zero]
    ranks = min(shown.layout.dp, 4) if shown.layout.dp > MOST_RANKS else max(shown.layout.dp, 2)
    levers = {
        "model": "toy-15m",
        "sequence": min(shown.workload.sequence, MOST_SEQUENCE),
        "micro_batch": min(shown.workload.micro_batch, 4),
        "recompute": shown.workload.recompute,
        "recipe": _recipe(strategy, shown.workload.recipe),
    }
    where = f"toy-15m, {stage_name(zero)} on {counted(ranks, 'rank')}"
    words = f"{where}, sequence {thousands(levers['sequence'])}, {levers['recipe']}{own_kernels(shown)}"
    return StandIn(
        strategy=strategy, levers=levers, scenario=plan(strategy).scenario(ranks, **levers), words=words
    )


def own_kernels(shown: Scenario) -> str:
    """Attention and loss of the real step where those shown are others, which it does not have."""
    work = shown.workload
    own = [
        words
        for words, asked in (("flash attention", work.attention), ("the eager loss", work.loss))
        if asked not in words
    ]
    return f", {' and '.join(own)}" if own else ""


def _recipe(strategy: str, shown: str) -> str:
    """The recipe shown if PyTorch has it for this strategy, else FP32."""
    able = ("fp32", "bf16", "sgd", "fsdp2-mixed") if strategy == "fsdp2" else ("fp32", "bf16", "sgd")
    return shown if shown in able else "fp32"


def predicted(chosen: StandIn) -> MeasuredMemory:
    """A stand-in's formula, before anything ran."""
    return MeasuredMemory(stand_in=chosen, formula=dict(_terms(chosen.scenario)))


@lru_cache(maxsize=32)
def _terms(scenario: Scenario) -> tuple[tuple[str, int], ...]:
    return tuple(training_memory(scenario).walk.terms.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedStep:
    """A trace: real code of one rank on fake tensors."""

    terms: Mapping[str, int]
    """Bytes by term at the peak."""
    totals: tuple[float, ...] = ()
    """Bytes along the step, thinned."""
    peak_index: int = 0

    @property
    def peak_bytes(self) -> int:
        """Most bytes at any operation."""
        return sum(self.terms.values())

    @classmethod
    def of(cls, returned: Mapping[str, Any]) -> TracedStep:
        """Read what `playbook.runtime.beside_trace.trace_on_rank` returned."""
        return cls(
            terms=dict(returned["terms"]), totals=tuple(returned["totals"]), peak_index=returned["peak_index"]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredMemory:
    """Trace of the scenario shown, and formula, trace and real step of its stand-in, as far as there are."""

    stand_in: StandIn | None = None
    formula: Mapping[str, int] = field(default_factory=dict)
    """Bytes by term at the stand-in's peak."""
    traced: Mapping[str, int] = field(default_factory=dict)
    measured: Mapping[str, int] = field(default_factory=dict)
    instant: str = ""
    source: str = ""
    shown: TracedStep | None = None
    """Trace of the scenario shown."""

    @property
    def peaks(self) -> list[tuple[str, Mapping[str, int]]]:
        """Source and bytes by term of what is known of the stand-in."""
        known = (("formula", self.formula), ("traced", self.traced), ("measured", self.measured))
        return [(source, terms) for source, terms in known if terms]

    @property
    def row(self) -> dict[str, Any]:
        """The stand-in's peak: formula, traced, measured, difference."""
        assert self.stand_in is not None
        peaks = {source: sum(terms.values()) for source, terms in self.peaks}
        cells = {source: size(peak) for source, peak in peaks.items()}
        return row(
            "peak of a real step",
            self.stand_in.words,
            formula=cells.get("formula"),
            traced=cells.get("traced", "not traced"),
            measured=cells.get("measured", "not run"),
            difference=difference(peaks.get("measured"), peaks.get("formula")),
        )


def measured_data(run: MeasuredMemory) -> dict[str, Any]:
    """The trace of the scenario shown, and the peaks of the stand-in as bars, for a view."""
    data: dict[str, Any] = {}
    if run.shown and run.shown.totals:
        highest = max(run.shown.totals)
        parts = np.rint(np.array(run.shown.totals) / highest * LEVELS)
        data["trace"] = {
            "highest": highest,
            "totals": parts.astype("<u2").tobytes(),
            "peak": run.shown.peak_bytes,
            "words": f"traced {amount(run.shown.peak_bytes)}",
        }
    if run.measured and run.stand_in is not None:
        formula = sum(run.formula.values())
        at = f", {instant_words(run.instant)}" if run.instant else ""
        data["title"] = ["A real step", f"{run.stand_in.words}; peak by term{at}"]
        data["source"] = run.source
        data["rows"] = [_bar(source, terms, formula) for source, terms in run.peaks]
    return data


def _bar(source: str, terms: Mapping[str, int], formula: int) -> dict[str, Any]:
    peak = sum(terms.values())
    return {
        "source": source,
        "words": size(peak),
        "difference": difference(peak, formula) if source != "formula" else "",
        "parts": [[group, amount, size(amount)] for group, amount in group_bytes(terms).items() if amount],
    }


def with_step(known: MeasuredMemory, memories: Sequence[Mapping[str, Any]], source: str) -> MeasuredMemory:
    """The same with the peak by term of the rank that had the highest.

    Parameters
    ----------
    known
        What is known of the stand-in.
    memories
        `memory` of what `playbook.runtime.strategy_run.run_on_rank` returned, by rank.
    source
        One of `playbook.tables.SOURCES`.
    """
    worst = max(memories, key=lambda memory: memory["peak_bytes"])
    terms = {one["term"]: int(one["bytes"]) for one in worst["terms"]}
    return replace(known, measured=terms, instant=str(worst["instant"]), source=source)
