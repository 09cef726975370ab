"""What a search for an order found, beside the schedules that are known and what no order can beat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from playbook.planner.known import Tried
from playbook.planner.setting import Setting
from playbook.program.schedule import Schedule
from playbook.program.simulation import Simulation
from playbook.units import number, percent

if TYPE_CHECKING:
    from pandas import DataFrame

CLOSE = 1e-9


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class FoundSchedule:
    """The best order found at a setting.

    Parameters
    ----------
    setting
        What was asked.
    found
        Best order for each number of copies of the model's stages, fewest copies first.
    known
        The folder's schedules that have an order at this size.
    refused
        Name → why the others have none.
    bounds
        Copies → makespan that no order beats whose ranks hold at most so many copies of the stages.
    """

    setting: Setting
    found: tuple[Tried, ...]
    known: tuple[Tried, ...]
    refused: dict[str, str]
    bounds: dict[int, float]

    @property
    def best(self) -> Tried:
        """The found order with the least makespan; of equal ones that with fewer copies."""
        return min(self.found, key=lambda one: (round(one.makespan, 9), one.copies))

    @property
    def schedule(self) -> Schedule:
        """The found order; runs on ranks and writes CSV like any other."""
        return self.best.schedule

    @property
    def simulation(self) -> Simulation:
        """The found order, timed by the event engine."""
        return self.best.simulation

    @property
    def makespan(self) -> float:
        """End of the found order, in the unit of the costs."""
        return self.best.makespan

    @property
    def lower_bound(self) -> float:
        """Makespan that no order of this setting beats; the proof is in `playbook.planner.bounds`."""
        return self.bounds[self.setting.copies]

    @property
    def gap(self) -> float:
        """What the found order is over the bound, as a fraction of it; 0 proves it optimal."""
        return self._over_bound(self.best)

    @property
    def best_known(self) -> Tried | None:
        """The folder's fastest schedule that keeps within the cap; None if none does."""
        able = [one for one in self.known if one.feasible]
        return min(able, key=lambda one: (one.makespan, one.copies), default=None)

    @property
    def table(self) -> DataFrame:
        """Every order, the fastest first.

        Columns: name, placement, copies (of the model's stages on all ranks together), makespan, peak (most
        stage-chunks alive on any rank), feasible, objection, lower_bound (of orders with at most so many
        copies), gap (makespan over it, less 1; none for an order over the cap, of which the bound says
        nothing).
        """
        from pandas import DataFrame

        order = sorted((*self.found, *self.known), key=lambda one: (one.makespan, one.copies))
        return DataFrame([self._row(one) for one in order])

    def _row(self, one: Tried) -> dict[str, object]:
        return {
            "name": one.name,
            "placement": placement_word(one.schedule),
            "copies": one.copies,
            "makespan": one.makespan,
            "peak": one.peak,
            "feasible": one.feasible,
            "objection": one.objection,
            "lower_bound": self.bounds[one.copies],
            "gap": self._over_bound(one) if self._within_cap(one) else None,
        }

    def _within_cap(self, one: Tried) -> bool:
        cap = self.setting.cap
        return cap is None or all(p <= c for p, c in zip(one.simulation.peak_live, cap, strict=True))

    def _over_bound(self, one: Tried) -> float:
        bound = self.bounds[one.copies]
        over = one.makespan - bound
        return over / bound if abs(over) > CLOSE and bound else 0.0

    def __repr__(self) -> str:
        s = self.setting
        cap = "no memory cap" if s.cap is None else f"memory cap {', '.join(map(str, sorted(set(s.cap))))}"
        found = "; ".join(self._words(one) for one in self.found)
        return f"FoundSchedule(p = {s.ranks}, m = {s.microbatches}, chunks {s.chunks}, {cap}: {found})"

    def _words(self, one: Tried) -> str:
        """A found order against the known ones with as many copies, and against the bound."""
        held = "" if len(self.found) == 1 else f"every stage held {('once', 'twice')[one.copies - 1]}: "
        text = f"{held}{placement_word(one.schedule)} order of {number(one.makespan)} cost units"
        rivals = [known for known in self.known if known.feasible and known.copies == one.copies]
        rival = min(rivals, key=lambda known: known.makespan, default=None)
        if rival is None:
            text += ", where no known schedule keeps within cap and options"
        elif rival.makespan - one.makespan <= CLOSE:
            text += f", as short as {rival.name}"
        else:
            shorter = percent(1 - one.makespan / rival.makespan)
            text += f", {shorter} shorter than {rival.name} ({number(rival.makespan)})"
        if self._over_bound(one) == 0:
            return f"{text}, and none is shorter"
        bound = number(self.bounds[one.copies])
        return f"{text}, at most {percent(self._over_bound(one))} over the best (none ends before {bound})"


def placement_word(made: Schedule) -> str:
    """How stages lie on ranks."""
    if made.chains > 1:
        return "bidirectional"
    if made.chunks > 1 and made.placement[-1] == 0:
        return "V"
    return "loop"
