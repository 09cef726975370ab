"""Step time of a scenario: rows at assumed rates, stages along their schedule. A model, with a band, not a
measurement."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from playbook.predict.orders import pipeline
from playbook.predict.rates import MEMORY_EFFICIENCY, PRODUCT_EFFICIENCY, rates_of
from playbook.predict.stage_seconds import StageSeconds, after_last, simulate_stages, stage_seconds
from playbook.predict.stages import context, lay_distinct, program_of
from playbook.predict.unbuilt import refuse_unbuilt
from playbook.program.rates import Rates
from playbook.program.schedule import Schedule
from playbook.program.timeline import Timeline
from playbook.schedules.packed import B, I, unpack
from playbook.spec import Scenario
from playbook.units import percent, seconds


@dataclass(frozen=True, kw_only=True, repr=False)
class StepTime:
    """Predicted time of one optimizer step.

    Parameters
    ----------
    scenario
        What was asked.
    seconds, low, high
        The likely time, and the band between fast and slow rates.
    terms
        Rows of term, seconds and exposed_seconds: compute, each axis's communication, the pipeline's idle
        slots.
    """

    scenario: Scenario
    seconds: float
    low: float
    high: float
    terms: list[dict[str, Any]]

    def __repr__(self) -> str:
        return (
            f"StepTime({seconds(self.seconds)}, between {seconds(self.low)} and {seconds(self.high)}; "
            f"model FLOPs utilisation {percent(self.mfu)}, predicted)"
        )

    @property
    def tokens_per_second_per_gpu(self) -> float:
        """Tokens of the global batch over time and ranks."""
        s = self.scenario
        return s.global_batch * s.workload.sequence / self.seconds / s.world

    @property
    def mfu(self) -> float:
        """Model FLOPs over the dense peak: 6 a parameter and token (input table left out) plus attention.

        Attention counts the whole score matrix, 12·s·a·k a layer and token, and no recompute.
        """
        s, model = self.scenario, self.scenario.model
        attention = 12 * model.layers * s.workload.sequence * model.heads * model.head_dim
        per_token = 6 * model.active_without_input_embedding + attention
        peak = s.cluster.gpu.flops_of(s.recipe.compute_dtype)
        return per_token * self.tokens_per_second_per_gpu / peak


def step_time(s: Scenario) -> StepTime:
    """Predict the time of one step.

    Notes
    -----
    Prediction from data-sheet rates and the efficiencies of `rates`. With a pipeline each stage's
    forward and backward are timed alone and laid along the schedule: some per cent too long, since reductions
    cross actions. An overlapped forward and backward cost their sum, since torch runs one after the other.
    """
    refuse_unbuilt(s)
    high, likely, low = (
        seconds_at(s, rates_of(s, product, memory))
        for product, memory in zip(PRODUCT_EFFICIENCY, MEMORY_EFFICIENCY, strict=True)
    )
    return StepTime(scenario=s, seconds=likely[0], low=low[0], high=high[0], terms=likely[1])


def seconds_at(s: Scenario, rates: Rates) -> tuple[float, list[dict[str, Any]]]:
    """Seconds of the step and its terms."""
    if s.layout.stages > 1:
        return pipelined(s, rates)
    timeline = program_of(s, slowest(s)).timeline(rates)
    everything = np.ones(len(timeline.program), dtype=bool)
    return timeline.seconds, terms_of(timeline, everything, timeline.seconds)


def slowest(s: Scenario) -> int:
    """The rank with the most work: where sequences are cut into contiguous pieces, the last of cp, whose
    tokens attend to all others."""
    contiguous = s.layout.cp_split == "contiguous" and s.layout.cp_method != "ulysses"
    return s.layout.rank(cp=s.layout.cp - 1) if contiguous else 0


def terms_of(
    timeline: Timeline, rows: NDArray[np.bool_], span: float, times: int = 1
) -> list[dict[str, Any]]:
    """Compute, and each axis's communication, of some rows that take a span; all of it so many times.

    What compute does not hide of the span is shared among the axes by their seconds.
    """
    program, busy = timeline.program, np.where(rows, timeline.duration_s, 0.0)
    talks = timeline.communicates
    compute, talking = float(busy[~talks].sum()), float(busy[talks].sum())
    found = [{"term": "compute", "seconds": times * compute, "exposed_seconds": times * compute}]
    axes = np.array([label.partition("@")[2] for label in program.ops])[program.rows.op]
    for axis in sorted(set(axes[talks].tolist())):
        seconds = float(busy[talks & (axes == axis)].sum())
        exposed = (span - compute) * seconds / talking if talking else 0.0
        found.append({"term": axis, "seconds": times * seconds, "exposed_seconds": times * exposed})
    return found


def pipelined(s: Scenario, rates: Rates) -> tuple[float, list[dict[str, Any]]]:
    """Lay the times of each stage's forward and backward along the schedule; terms are the busiest rank's."""
    made = pipeline(s)
    stages = stage_seconds(
        s, rates, made, lay_distinct(s, context(s, slowest(s)), range(len(made.placement)))
    )
    timed = simulate_stages(s, rates, made, stages)
    rank = int(np.argmax(timed.work))
    after, exposed = after_last(made, stages), timed.exposed_communication[rank]
    sums: dict[str, dict[str, Any]] = {}
    for row in rank_terms(made, stages, rank):
        kept = sums.setdefault(row["term"], {"term": row["term"], "seconds": 0.0, "exposed_seconds": 0.0})
        for field in ("seconds", "exposed_seconds"):
            kept[field] += row[field]
    messages = timed.messages
    way = float(messages.way[timed.rank[messages.receiver] == rank].sum())
    idle = timed.makespan - timed.work[rank] - exposed
    return timed.makespan + after, [
        *sums.values(),
        {"term": "pp", "seconds": way, "exposed_seconds": exposed},
        {"term": "optimizer", "seconds": after, "exposed_seconds": after},
        {"term": "idle", "seconds": idle, "exposed_seconds": idle},
    ]


def rank_terms(made: Schedule, stages: tuple[StageSeconds, ...], rank: int) -> list[dict[str, Any]]:
    """Terms of each of a rank's stages, for all its micro-batches with a whole or a split backward."""
    stage, kind, _ = unpack(made.packed[rank])
    found = []
    for slot in np.unique(stage).tolist():
        times = stages[slot]
        fused, parted = (int(((stage == slot) & (kind == code)).sum()) for code in (B, I))
        if fused and times.whole is not None:
            found += turn_terms(times.whole, times.forward + times.backward, fused)
        if parted and times.split is not None:
            span = times.forward + times.backward_input + times.backward_weight
            found += turn_terms(times.split, span, parted)
    return found


def turn_terms(timeline: Timeline, span: float, times: int) -> list[dict[str, Any]]:
    """Terms of so many micro-batches of a stage, its messages and its optimizer step left out."""
    axis = np.array([label.partition("@")[2] for label in timeline.program.ops])[timeline.program.rows.op]
    mine = (timeline.program.microbatch >= 0) & (axis != "pp")
    return [row for row in terms_of(timeline, mine, span, times) if row["term"] != "pp"]
