"""What real ranks did of a collective.

Bytes, times by size, the link that fits them, the values after each step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from playbook.collectives import Collective
from playbook.pictures.fit import Fit, fit_link
from playbook.pictures.words import row, short
from playbook.spec import Link
from playbook.units import counted, percent

if TYPE_CHECKING:
    from playbook.pictures.collective import CollectiveView

FEW = (1024, 16 * 1024, 256 * 1024, 4 * 2**20)
"""Buffers that a run times beside its own, so that a link can be fitted that its time is compared with."""
SWEEP = tuple(1024 * 4**power for power in range(7))
"""Buffers that a sweep times, 1 KiB to 4 MiB."""
LARGEST_TIMED = 16 * 2**20
REPEATS = 20
"""Timed calls of each size of a sweep.

The fastest of fewer lies well above the true minimum on a busy machine.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredCollective:
    """A run of one collective on real ranks, or as much of it as there is yet."""

    one: Collective
    source: str
    """One of `playbook.tables.SOURCES`."""
    values: Mapping[tuple[int, int], Sequence[float | None]] = field(default_factory=dict)
    """(step, rank) → the number that each of the rank's chunks consists of after the step.

    None where it holds none.
    """
    sent_bytes: int | None = None
    """Bytes that the busiest rank sent in the run that is shown, counted at its calls."""
    shown_bytes: int | None = None
    """The same by formula."""
    times: Mapping[int, float] = field(default_factory=dict)
    """Bytes of the full buffer → fastest seconds of the steps."""
    library: Mapping[int, float] = field(default_factory=dict)
    """The same of the library's one call."""
    exact: bool | None = None
    """Whether every state and the library's result are the expected ones; None until compared."""
    fit: Fit | None = None

    def seconds_at(self, size_bytes: int) -> float | None:
        """Measured time of a buffer of this size, None if it was not timed."""
        return self.times.get(size_bytes)

    def bytes_of(self, size_bytes: int) -> float | None:
        """Bytes sent for a full buffer of this size, by the share counted at the calls of the small one."""
        if not self.sent_bytes or not self.shown_bytes:
            return None
        return self.one.bytes_sent_per_rank(size_bytes) * (self.sent_bytes / self.shown_bytes)

    def fits(self, link: Link) -> bool:
        """Whether the link was fitted to this run, so that a difference of times means something."""
        return self.fit is not None and self.fit.link == link

    @property
    def steps_done(self) -> float:
        """Part of the steps that every rank has taken."""
        return len(self.values) / (self.one.ranks * (len(self.one.load) + 1))

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Rows that only a run can fill."""
        if self.exact is None:
            return []
        verdict = ("equal", "✓ equal") if self.exact else ("differs", "✕ differs")
        note = (
            f"{counted(self.one.ranks, 'rank')} after each of "
            f"{counted(len(self.one.load), 'step')}, and the library"
        )
        return [
            row(
                "numbers in every cell",
                note,
                formula="expected",
                traced="—",
                measured=verdict[0],
                difference=verdict[1],
            )
        ]

    @property
    def sentence(self) -> str:
        """What the run showed, in one sentence."""
        if self.exact is None:
            return ""
        if not self.exact:
            return "On real ranks some cell came out different."
        return f"On {counted(self.one.ranks, 'real rank')} every cell came out as drawn."

    @property
    def words(self) -> str:
        """Where this run's numbers went while another collective is shown."""
        what = f"{self.one.operation.words} by {self.one.algorithm} on {counted(self.one.ranks, 'rank')}"
        return f" The last run was {what}: its numbers come back with it."

    @property
    def note(self) -> str:
        """How the run was made, and how the fit did on sizes it has not seen."""
        base = "Cells show the ranks' real numbers: tens count the rank, ones the chunk."
        if self.fit is None:
            return f"{base} gloo on this CPU: order and bytes, not a GPU's speed."
        n, fitted = len(self.fit.held_out), len(self.fit.fitted)
        return (
            f"α, β fitted on {fitted} of {n + fitted} sizes; {n} held out: "
            f"error {percent(self.fit.median_error)} median, "
            f"{percent(self.fit.worst_error)} worst. gloo on this CPU says nothing of a GPU's speed."
        )


def run_levers(view: CollectiveView, sweep: bool) -> dict[str, Any]:
    """Levers of the run of a collective: a few buffers on the clock, this one among them, or a sweep.

    Buffers above `LARGEST_TIMED` are left out: gloo leaves the line there, and the ranks share this machine's
    memory.
    """
    own = [view.size_bytes] if view.size_bytes <= LARGEST_TIMED else []
    sizes = sorted({*(SWEEP if sweep else FEW), *own})
    return {"algorithm": view.one.algorithm, "sizes": sizes, "repeats": REPEATS if sweep else 16}


def with_step(
    run: MeasuredCollective, rank: int, step: int, values: Sequence[float | None]
) -> MeasuredCollective:
    """The run with what one rank holds after a step."""
    return replace(run, values={**run.values, (step, rank): tuple(values)})


def measured_collective(
    one: Collective, returned: Sequence[Mapping[str, Any]], source: str
) -> MeasuredCollective:
    """Make the measured collective of what every rank of a run returned.

    Parameters
    ----------
    one
        The collective that ran.
    returned
        What `playbook.runtime.collective_run.run_on_rank` returned, by rank.
    source
        Where it ran.
    """
    first = returned[0]
    times = {
        by: {row["bytes"]: row["seconds"] for row in first["times"] if row["by"] == by}
        for by in ("hand", "library")
    }
    states = first["states"]
    return MeasuredCollective(
        one=one,
        source=source,
        values={
            (step, rank): tuple(values)
            for step, state in enumerate(states)
            for rank, values in enumerate(state)
        },
        sent_bytes=max(value["traffic"]["payload_bytes"] for value in returned),
        shown_bytes=first["bytes_sent_per_rank"],
        times=times["hand"],
        library=times["library"],
        exact=all(value["parity"]["ok"] for value in returned),
        fit=fit_link(one, times["hand"]) if len(times["hand"]) >= 4 and one.load else None,
    )


def measured_data(run: MeasuredCollective, link: Link, step: int) -> dict[str, Any]:
    """The same as plain data for a view.

    Returns
    -------
    dict
        `points` ([bytes, seconds, difference] of each size; no difference on a link that was not fitted to
        them), `values` (rank by rank, each chunk's number at the step as text; "" where none is held) and
        `source`.
    """
    points = []
    for size, time in sorted(run.times.items()):
        predicted = run.one.seconds(size, link)
        points.append([size, time, time / predicted - 1 if run.fits(link) and predicted else None])
    cells = [run.values.get((step, rank)) for rank in range(run.one.ranks)]
    values = (
        None
        if any(cell is None for cell in cells)
        else [short(v) if v is not None else "" for cell in cells for v in cell or ()]
    )
    return {"points": points, "values": values, "source": run.source}
