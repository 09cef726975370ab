"""Step time of a scenario: rows at assumed rates, stages along their schedule. A model, with a band, not a
measurement."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from playbook.predict.rates import MEMORY_EFFICIENCY, PRODUCT_EFFICIENCY, rates_of
from playbook.predict.stages import context, lay, pipeline, program_of
from playbook.predict.unbuilt import refuse_unbuilt
from playbook.program.assemble import assemble
from playbook.program.ids import PHASES
from playbook.program.order import accumulate
from playbook.program.rates import Rates
from playbook.program.step import Program
from playbook.program.timeline import Timeline
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
    cross actions.
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
    timeline = program_of(s).timeline(rates)
    everything = np.ones(len(timeline.program), dtype=bool)
    return timeline.seconds, terms_of(timeline, everything, timeline.seconds)


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
    """Lay the times of each stage's forward and backward along the schedule."""
    stages = [one_microbatch(s, stage).timeline(rates) for stage in range(s.layout.stages)]
    turns = [turn_of(timeline) for timeline in stages]
    message = s.model.hidden * s.workload.sequence * s.workload.micro_batch * s.recipe.compute_bytes
    found = pipeline(s).simulate(
        forward=[forward for forward, _ in turns],
        backward=[backward for _, backward in turns],
        link=rates.links["pp"],
        message_bytes=float(message),
    )
    after = max(timeline.seconds - sum(turn) for timeline, turn in zip(stages, turns, strict=True))
    slowest = max(range(len(turns)), key=lambda stage: sum(turns[stage]))
    span = sum(turns[slowest])
    steps = stages[slowest].program.microbatch >= 0
    idle = found.makespan - s.microbatches * span
    return found.makespan + after, [
        *terms_of(stages[slowest], steps, span, s.microbatches),
        {"term": "optimizer", "seconds": after, "exposed_seconds": after},
        {"term": "idle", "seconds": idle, "exposed_seconds": idle},
    ]


def turn_of(timeline: Timeline) -> tuple[float, float]:
    """Seconds of the forward and of the backward of one micro-batch."""
    end, phase = timeline.start_s + timeline.duration_s, timeline.program.rows.phase
    forward = float(end[phase == PHASES.index("F")].max())
    return forward, float(end[timeline.program.microbatch >= 0].max()) - forward


def one_microbatch(s: Scenario, stage: int) -> Program:
    """A stage's forward and backward of one micro-batch."""
    work = replace(s.workload, global_batch=s.layout.dp * s.workload.micro_batch)
    one = replace(s, workload=work)
    return assemble({stage: lay(one, stage, context(one))}, accumulate(1, stage), axes=dict(s.layout.axes))
