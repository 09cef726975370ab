"""Training memory of a scenario: the worst rank's peak by term, with the formula of each, and whether it
fits."""

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from playbook.frameworks import policy
from playbook.predict.left_out import left_out, noted
from playbook.predict.padding import padded_experts
from playbook.predict.reserved import Unused, unused_of
from playbook.predict.stages import blocks_of, context, program_of, rank_memories, templates
from playbook.predict.unbuilt import refuse_unbuilt
from playbook.predict.unrun import not_run
from playbook.program.polynomial import Polynomial, constant
from playbook.program.step import Program
from playbook.program.summary import RankMemory
from playbook.program.walk import MemoryWalk
from playbook.spec import Scenario
from playbook.spec.cluster import MIB
from playbook.tables import TERMS, table
from playbook.units import gb

if TYPE_CHECKING:
    from pandas import DataFrame

CONTEXT_BYTES = 639 * MIB
"""CUDA context of a process, measured on an H200 (driver 580.159, torch 2.11, CUDA 13.0)."""

COMMUNICATOR_BYTES = 558 * MIB
"""What the first NCCL communicator adds, measured there too (NCCL 2.28.9)."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TrainingMemory:
    """Predicted memory of the worst rank.

    Parameters
    ----------
    scenario
        What was asked.
    walk
        The worst rank's step, walked.
    terms
        Rows of term, bytes and formula: those of the peak, then what the allocator holds beyond it, then the
        driver.
    worst_rank
        Its number and its place on each axis.
    per_stage
        Peak of each pipeline rank.
    reserved_low_bytes
        Lower end of the band of what the allocator holds; `reserved_bytes` is the upper end.
    host_bytes
        State that the rank keeps in the host's memory, where the workload offloads some.
    pipeline
        Memory of each pipeline rank, action by action; none without a pipeline.
    """

    scenario: Scenario
    walk: MemoryWalk
    terms: list[dict[str, Any]]
    worst_rank: dict[str, int]
    per_stage: list[dict[str, int]]
    reserved_low_bytes: int
    host_bytes: int = 0
    pipeline: tuple[RankMemory, ...] = ()

    def __repr__(self) -> str:
        gpu, fits = self.scenario.cluster.gpu, "fits" if self.fits else "does not fit"
        return (
            f"TrainingMemory(rank {self.worst_rank['rank']}: peak {gb(self.peak_bytes)} at {self.instant}; "
            f"{gb(self.device_bytes)} of the device, {fits} {gpu.name} with {gb(gpu.memory_bytes)})"
            f"{self.note and f' Note: {self.note}'}"
        )

    @property
    def note(self) -> str:
        """What a lever or a degree does not do here, what of the model is left out, what torch does not run;
        else empty."""
        return noted(self._idle_lever, left_out(self.scenario.model), not_run(self.scenario))

    @property
    def _idle_lever(self) -> str:
        work, padded = self.scenario.workload, padded_experts(self.scenario)
        drops = policy(self.scenario.framework).selective_keeps
        if work.recompute != "selective" or work.attention != "flash" or drops:
            return padded
        return (
            "recompute='selective' drops the scores of attention, and flash attention keeps none: it saves "
            "next to nothing here; use recompute='full', or attention='math' to see what it drops"
        )

    @property
    def peak_bytes(self) -> int:
        """What the allocator hands out at the peak."""
        return self.walk.peak_bytes

    @property
    def instant(self) -> str:
        """Phase and block of the peak, as in "B layers.78"."""
        return self.walk.instant

    @property
    def reserved_bytes(self) -> int:
        """Peak and the allocator's unused part, upper end of its band."""
        return self.peak_bytes + self._term("reserved_unused")

    @property
    def device_bytes(self) -> int:
        """Reserved memory, driver context and communicators: what the driver reports as used."""
        return self.reserved_bytes + self._term("context")

    @property
    def fits(self) -> bool:
        """Whether `device_bytes` is at most the GPU's memory as its driver reports it."""
        return self.device_bytes <= self.scenario.cluster.gpu.memory_bytes

    def _term(self, name: str) -> int:
        return sum(row["bytes"] for row in self.terms if row["term"] == name)

    @property
    def table(self) -> "DataFrame":
        """The memory table, one row a term."""
        program = self.walk.program
        common = {
            "scenario": program.scenario,
            "rank": self.worst_rank["rank"],
            "op": program.id(self.walk.peak_row),
            "instant": self.instant,
            "source": "formula",
        }
        return table("memory", [{**common, **row} for row in self.terms])


def training_memory(s: Scenario, rank: int | None = None) -> TrainingMemory:
    """Predict a rank's memory, the worst one's if none is given.

    Notes
    -----
    Prediction. Ranks of one stage differ at most by the padding of their shards, and the first has the most.
    The allocator's unused part is a band (`playbook.predict.reserved`), and `fits` counts its upper end.
    """
    refuse_unbuilt(s)
    memories = rank_memories(s) if s.layout.pp > 1 else None
    if rank is None:
        worst = int(np.argmax([memory.peak_bytes for memory in memories])) if memories else 0
        rank = s.layout.rank(pp=worst)
    program = program_of(s, rank)
    walk = program.memory()
    peaks = [memory.peak_bytes for memory in memories] if memories else [walk.peak_bytes]
    unused = unused_of(s, walk.peak_bytes)
    return TrainingMemory(
        scenario=s,
        walk=walk,
        terms=[*peak_terms(s, program, walk), *driver_terms(s, unused)],
        worst_rank={"rank": rank, **s.layout.coordinates(rank)},
        per_stage=[{"stage": stage, "peak_bytes": peak} for stage, peak in enumerate(peaks)],
        reserved_low_bytes=walk.peak_bytes + unused.low_bytes,
        host_bytes=host_bytes(s, program),
        pipeline=tuple(memories or ()),
    )


def host_bytes(s: Scenario, program: Program) -> int:
    """Bytes of the state of a program's rank that are kept on the host: what the device holds without
    offloading, less what it holds with it."""
    ctx = context(s, program.rank)
    if not ctx.hosted:
        return 0
    held = 0
    for number in program.stages:
        for block in blocks_of(s, number, replace(ctx, hosted=frozenset())):
            sizes = (t.bytes for t in block.tensors if t.birth.segment == "S" and t.term in ctx.hosted)
            held += sum(size for size in sizes if isinstance(size, int))
    return held


def peak_terms(s: Scenario, program: Program, walk: MemoryWalk) -> list[dict[str, Any]]:
    """Bytes and formula of each term at the peak."""
    formulas = formulas_at(s, program, walk.peak_row)
    psi = whole_model(s) if s.layout.stages == s.layout.tp == 1 else constant(0)
    return [
        {"term": term, "bytes": size, "formula": in_words(formulas[term], psi)}
        for term, size in walk.terms.items()
    ]


def driver_terms(s: Scenario, unused: Unused) -> list[dict[str, Any]]:
    """What lies outside the allocator's hands: its unused part, and the driver's context."""
    several = s.world > 1
    rows = []
    if unused.high_bytes:
        rows.append({"term": "reserved_unused", "bytes": unused.high_bytes, "formula": unused.formula})
    size = CONTEXT_BYTES + (COMMUNICATOR_BYTES if several else 0)
    parts = "CUDA context 639 MiB" + (", first communicator 558 MiB" if several else "")
    return [*rows, {"term": "context", "bytes": size, "formula": parts}]


def formulas_at(s: Scenario, program: Program, row: int) -> dict[str, Polynomial]:
    """Sum of the sizes of the tensors that are alive at a row, by term, in the model's symbols."""
    held = program.held
    alive = (held.birth <= row) & (held.death >= row)
    counts = np.bincount(held.template[alive], minlength=len(program.templates))
    sums = {term: constant(0) for term in TERMS}
    for count, tensor, size in zip(
        counts.tolist(), program.templates, symbolic_sizes(s, program), strict=True
    ):
        if count:
            sums[tensor.term] = sums[tensor.term] + count * size
    return sums


def symbolic_sizes(s: Scenario, program: Program) -> list[Polynomial]:
    """The size of each tensor template of a program as a polynomial: the same passes, run on symbols."""
    ctx = context(s, program.rank, symbolic=True)
    sizes = []
    for number, numeric in program.stages.items():
        blocks = blocks_of(s, number, ctx)
        sizes += [constant(tensor.bytes) for first in numeric.first_of for tensor in blocks[first].tensors]
    return sizes


def whole_model(s: Scenario) -> Polynomial:
    """Parameters of the whole model as a polynomial."""
    blocks = templates(s, 0, context(s, symbolic=True))
    distinct = {id(block): block for block in blocks}
    count = Counter(id(block) for block in blocks)
    return sum((count[key] * constant(block.numel) for key, block in distinct.items()), constant(0))


def in_words(formula: Polynomial, psi: Polynomial) -> str:
    """Write a formula; a multiple of the whole model as one of Ψ, as in `12·Ψ/N`."""
    for base, text in ((psi, "Ψ"), (psi.over("N"), "Ψ/N")):
        ratio = formula.ratio(base)
        if ratio is not None:
            return f"{ratio}·{text}"
    return str(formula)
