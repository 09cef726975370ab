"""How many micro-batches: more of them leave a smaller bubble, and each runs slower kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from playbook.planner.microbatch_words import words
from playbook.planner.stage_times import StageTimes
from playbook.program.schedule import Schedule, schedule
from playbook.schedules.packed import I, unpack
from playbook.schedules.registry import find_plan
from playbook.spec.rules import divisors, not_negative, positive, whole
from playbook.units import counted

if TYPE_CHECKING:
    from pandas import DataFrame

Comm = float | Callable[[int], float]
"""Seconds of one message: one number, or a function of the micro-batch's sequences."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MicrobatchRow:
    """One schedule at one number of micro-batches."""

    schedule: str
    microbatches: int
    micro_batch: int
    """Sequences of each."""
    forward_s_per_sequence: float
    """Seconds of a rank's forward for one sequence: what larger micro-batches lower."""
    idle_over_makespan: float
    """Idle share of the step: what more micro-batches lower."""
    step_s: float
    """Seconds of the forwards and backwards of one step."""
    sequences_per_s: float
    peak_live: int
    """Most stage-chunks alive on a rank."""
    sequences_alive: float
    """The same in sequences on a rank's whole share of the model."""
    fits: bool
    """Whether that is within the cap."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class MicrobatchChoice:
    """Every division of a batch into micro-batches, timed under some schedules.

    Parameters
    ----------
    times
        The stage seconds that it rests on.
    stages
        Pipeline ranks.
    global_batch
        Sequences of one step through this pipeline.
    rows
        Every schedule at every size that divides the batch and lies in the table.
    refused
        "schedule at m" → why there is no such order, or why its times are not known.
    """

    times: StageTimes
    stages: int
    global_batch: int
    rows: tuple[MicrobatchRow, ...]
    refused: dict[str, str]

    @property
    def best(self) -> MicrobatchRow:
        """The fastest step that fits."""
        return min((row for row in self.rows if row.fits), key=lambda row: row.step_s)

    @property
    def smallest_bubble(self) -> MicrobatchRow:
        """The least idle share under the best row's schedule."""
        return min(self._same_schedule(), key=lambda row: row.idle_over_makespan)

    @property
    def fastest_kernels(self) -> MicrobatchRow:
        """The least forward time a sequence under the best row's schedule."""
        return min(self._same_schedule(), key=lambda row: row.forward_s_per_sequence)

    def _same_schedule(self) -> list[MicrobatchRow]:
        return [row for row in self.rows if row.schedule == self.best.schedule]

    @property
    def table(self) -> DataFrame:
        """Rows by schedule and number of micro-batches, with the columns of `MicrobatchRow` and source."""
        from pandas import DataFrame

        names = MicrobatchRow.__slots__
        columns = {name: [getattr(row, name) for row in self.rows] for name in names}
        return DataFrame({**columns, "source": "simulated"})

    def __repr__(self) -> str:
        return (
            f"MicrobatchChoice({counted(self.global_batch, 'sequence')} on "
            f"{counted(self.stages, 'rank')}: {words(self)}; "
            f"simulated from times {self.times.source})"
        )


def best_microbatches(
    times: StageTimes,
    stages: int,
    global_batch: int,
    *,
    schedules: str | Sequence[str] = ("1f1b",),
    chunks: int | None = None,
    comm: Comm = 0.0,
    memory_cap_sequences: float | None = None,
) -> MicrobatchChoice:
    """Time every division of a batch into micro-batches.

    Parameters
    ----------
    times
        Seconds of a rank's whole share of the model against the micro-batch's sequences; with v chunks a
        chunk takes 1/v of them. All stages are taken as equal.
    stages
        Pipeline ranks p.
    global_batch
        Sequences of one step through this pipeline: of one data-parallel replica.
    schedules
        Names of schedules to try.
    chunks
        Stages of the model on each rank, for schedules that can have several; their own default if not given.
    comm
        Seconds of one message between ranks; or a function of the micro-batch's sequences, since messages
        grow with it.
    memory_cap_sequences
        Most sequences alive on a rank, as activations of its whole share of the model; None for no cap.

    Returns
    -------
    MicrobatchChoice
        `.table`, `.best`, and in words what the smallest bubble and the fastest kernels would cost.

    Raises
    ------
    ValueError
        If no size of the table divides the batch, or nothing fits; the text says what would.

    Notes
    -----
    Simulated from the times given. The optimizer and gradient reductions, the same for all, are left out.
    """
    if not isinstance(times, StageTimes):
        raise TypeError(
            f"times={type(times).__name__}(...) must be StageTimes, a stage's seconds by micro-batch; "
            f'measure them with pb.measure_stage_times(None, "toy-15m", 2, 16), or give '
            f"StageTimes(sequences=..., forward_s=..., backward_s=...)"
        )
    p, batch = whole("stages", stages), whole("global_batch", global_batch)
    low, high = times.sequences[0], times.sequences[-1]
    sizes = [size for size in divisors(batch) if low <= size <= high]
    if not sizes:
        raise ValueError(
            f"global_batch={batch} has no divisor from {low} to {high}, the sizes of the table; "
            f"use a multiple of one of them, as {batch // low * low or low}"
        )
    cap = None if memory_cap_sequences is None else positive("memory_cap_sequences", memory_cap_sequences)
    names = [schedules] if isinstance(schedules, str) else list(schedules)
    rows, refused = [], {}
    for name in names:
        for size, made in _orders(name, p, batch, sizes, chunks):
            told = made if isinstance(made, str) else _row(made, times, size, comm, cap)
            if isinstance(told, str):
                refused[f"{name} at m = {batch // size}"] = told
            else:
                rows.append(told)
    _check_some(rows, refused, cap)
    return MicrobatchChoice(times=times, stages=p, global_batch=batch, rows=tuple(rows), refused=refused)


def _orders(
    name: str, stages: int, batch: int, sizes: Sequence[int], chunks: int | None
) -> Iterator[tuple[int, Schedule | str]]:
    """The order at each size, or why there is none."""
    plan = find_plan(name)
    wanted = plan.default_chunks if chunks is None else chunks
    v = wanted if plan.refuse(stages, batch, wanted) is None else plan.default_chunks
    for size in sizes:
        try:
            yield size, schedule(plan.name, stages, batch // size, v)
        except ValueError as refusal:
            yield size, str(refusal)


def _row(made: Schedule, times: StageTimes, size: int, comm: Comm, cap: float | None) -> MicrobatchRow | str:
    """Time an order with the stage's seconds at a size; or say why that cannot be."""
    taken, v = times.at(size), made.chunks
    parts = taken.backward_input_s, taken.backward_weight_s
    if None in parts and any((unpack(order)[1] >= I).any() for order in made.packed):
        return "splits backward, and the table has no backward_input_s and backward_weight_s"
    timed = made.simulate(
        forward=taken.forward_s / v,
        backward_input=(parts[0] or 0.0) / v,
        backward_weight=(parts[1] or 0.0) / v,
        backward=taken.backward_s / v,
        comm=not_negative("comm", float(comm(size)) if callable(comm) else comm),
    )
    peak = max(timed.peak_live)
    return MicrobatchRow(
        schedule=made.name,
        microbatches=made.microbatches,
        micro_batch=size,
        forward_s_per_sequence=taken.forward_s / size,
        idle_over_makespan=timed.idle_over_makespan,
        step_s=timed.makespan,
        sequences_per_s=made.microbatches * size / timed.makespan,
        peak_live=peak,
        sequences_alive=peak * size / v,
        fits=cap is None or peak * size / v <= cap,
    )


def _check_some(rows: Sequence[MicrobatchRow], refused: dict[str, str], cap: float | None) -> None:
    """Refuse if there is nothing to choose from."""
    if not rows:
        where, why = next(iter(refused.items()), ("schedules=()", "names none"))
        raise ValueError(f"no schedule can be timed; {where}: {why}")
    if not any(row.fits for row in rows):
        least = min(rows, key=lambda row: row.sequences_alive)
        raise ValueError(
            f"memory_cap_sequences={cap:g}: nothing fits; {least.schedule} with m = {least.microbatches} has "
            f"the fewest sequences alive, {least.sequences_alive:g}; use {least.sequences_alive:g} or more"
        )
