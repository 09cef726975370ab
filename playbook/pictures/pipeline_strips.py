"""Times of real actions as they come in, schedule after schedule, laid on the blocks of their pictures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from playbook.pictures.pipeline_orders import TimedOrder
from playbook.pictures.pipeline_run import ActionTime, MeasuredOrder, measured_order
from playbook.program.simulated_timeline import KIND_WORDS


class Strips:
    """What ranks have told so far of a run of several schedules.

    Parameters
    ----------
    orders
        The schedules in the order in which they run.
    unit_s
        Seconds of a unit of the picture's clock.
    """

    def __init__(self, orders: Sequence[TimedOrder], unit_s: float) -> None:
        self.orders, self.unit_s = tuple(orders), unit_s
        self._times: list[dict[str, ActionTime]] = [{} for _ in orders]
        self._waits: list[dict[str, float]] = [{} for _ in orders]
        self._place: dict[int, int] = {}
        self.measured: dict[str, MeasuredOrder] = {}

    def take(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Take events of ranks: "run" names the schedule that a rank begins, "action" what it did."""
        for event in events:
            if event["kind"] == "run":
                self._place[event["rank"]] = int(event["name"])
            elif event["kind"] == "action":
                self._take_action(event)
        self.measured = self._lay()

    def _take_action(self, event: Mapping[str, Any]) -> None:
        place, name = self._place[event["rank"]], event["name"]
        if event["what"] in KIND_WORDS:
            self._times[place][name] = (name, event["start_s"], event["duration_s"])
        elif event["what"] == "wait":
            self._waits[place][name] = event["duration_s"]

    @property
    def progress(self) -> list[float]:
        """Part of each schedule's actions that has run."""
        return [
            len(times) / one.timed.start.size for one, times in zip(self.orders, self._times, strict=True)
        ]

    def on_clock_of(self, orders: Sequence[TimedOrder]) -> dict[str, MeasuredOrder]:
        """What has run of some of the schedules, on the clock of a picture with other schedules beside them.

        The unit of a clock is the forward of a chunk of the schedule that has most.
        """
        ran = {one.order.name: one.timed.makespan for one in self.orders}
        return {
            one.order.name: self.measured[one.order.name].stretched(one.timed.makespan / ran[one.order.name])
            for one in orders
            if one.order.name in self.measured
        }

    def _lay(self) -> dict[str, MeasuredOrder]:
        return {
            one.order.name: measured_order(one, times.values(), self.unit_s, "emulated", waits)
            for one, times, waits in zip(self.orders, self._times, self._waits, strict=True)
            if times
        }
