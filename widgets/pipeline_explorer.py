"""PipelineExplorer: schedules stacked on one clock, and the same orders run by real ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import traitlets as T

from playbook.pictures.pipeline import (
    Costs,
    TimedOrder,
    pipeline_copies,
    pipeline_picture,
    takes_chunks,
    timed_orders,
)
from playbook.pictures.pipeline_run import (
    ActionTime,
    MeasuredOrder,
    emulation_levers,
    measured_data,
    measured_order,
    run_note,
    unit_seconds,
)
from playbook.pictures.pipeline_words import title_of
from playbook.schedules import plans
from widgets.controls import checks, field, slider
from widgets.pool import Task
from widgets.running import RunningExplorer
from widgets.stills import pipeline_png

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from playbook.runtime.errors import RankFailed

STAGES = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48, 64)
MICROBATCHES = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 48, 64, 96, 128, 160, 192, 256)
LATENCIES = tuple(round(0.1 * tenth, 1) for tenth in range(21))


class PipelineExplorer(RunningExplorer):
    """Pipeline schedules on one clock: blocks, idle time and memory of each rank."""

    CONTROLS = ("stages", "microbatches", "chunks", "costs", "latency", "schedules")
    VIEW = "pipeline"

    stages = T.Int(4, help="Pipeline ranks p.").tag(sync=True, control=slider("Stages p", STAGES))
    microbatches = T.Int(8, help="Micro-batches m of one step.").tag(
        sync=True, control=slider("Micro-batches m", MICROBATCHES)
    )
    chunks = T.Int(2, help="Chunks v of each rank, for the schedules that take several.").tag(
        sync=True, control=slider("Chunks v", range(1, 9))
    )
    costs = T.Unicode("1 : 1 : 1", help="Forward, backward for inputs, backward for weights.").tag(
        sync=True, control=field("Costs F : I : W")
    )
    latency = T.Float(0.0, help="Delay of a hop between ranks, in the units of the costs.").tag(
        sync=True, control=slider("Latency per hop", LATENCIES, "plain")
    )
    schedules = T.List(T.Unicode(), ["gpipe", "1f1b"], help="Schedules shown.").tag(
        sync=True, control=checks("Schedules shown", [(name, title_of(name)) for name in plans()])
    )

    def __init__(self, **given: Any) -> None:
        self._orders: tuple[TimedOrder, ...] = ()
        self._ran: dict[str, MeasuredOrder] = {}
        self._times: list[dict[str, ActionTime]] = []
        self._place: dict[int, int] = {}
        self._ran_key: tuple[Any, ...] = ()
        self._unit_s = 0.0
        super().__init__(**given)

    def draw(self) -> dict[str, Any]:
        """Picture of the schedules shown, with what real ranks did if they ran these."""
        costs = Costs.parse(self.costs, self.latency)
        self._orders = timed_orders(self.schedules, self.stages, self.microbatches, costs, self.chunks)
        ran = self._ran if self._key() == self._ran_key else {}
        shown = {one.order.name: one for one in self._orders}
        data = {name: measured_data(shown[name], run) for name, run in ran.items() if name in shown}
        return {
            "picture": pipeline_picture(self._orders, costs, ran),
            "measured": {"schedules": data} if data else {},
            "actions": [
                {"name": "run", "label": f"Run on {self.stages} ranks", "help": "Real processes and messages"}
            ],
            "note": run_note(self._orders) + self._elsewhere(),
        }

    def options(self) -> dict[str, Any]:
        """The number of chunks, only where a schedule takes several."""
        return {} if any(takes_chunks(name) for name in self.schedules) else {"chunks": None}

    def task(self, name: str) -> Task:
        """All schedules shown, one after the other, on as many ranks as there are stages."""
        from playbook.runtime.several import run_several
        from playbook.runtime.strategy_run import strategy_run

        self._unit_s = unit_seconds(self._orders)
        runs = [
            strategy_run("pp", self.stages, parity="off", repeats=1, **emulation_levers(one, self._unit_s))
            for one in self._orders
        ]
        self._ran_key, self._ran, self._place = self._key(), {}, {}
        self._times = [{} for _ in runs]
        titles = tuple(one.title for one in self._orders)
        return Task(
            ranks=self.stages,
            work=run_several,
            args=(runs,),
            phases=titles,
            what=f"{' and '.join(titles)}, action by action.",
        )

    def take(self, events: Sequence[dict[str, Any]]) -> None:
        """Lay what has run on the blocks."""
        for event in events:
            if event["kind"] == "run":
                self._place[event["rank"]] = int(event["name"])
            elif event["kind"] == "action" and event["what"] in ("forward", "backward"):
                times = self._times[self._place[event["rank"]]]
                times[event["name"]] = (event["name"], event["start_s"], event["duration_s"])
        if self._key() == self._ran_key:
            for one, times in zip(self._orders, self._times, strict=True):
                if times:
                    self._ran[one.order.name] = measured_order(one, times.values(), self._unit_s, "emulated")

    def progress(self) -> Sequence[float]:
        """Part of each schedule's actions that has run."""
        return [
            len(times) / one.timed.start.size for one, times in zip(self._orders, self._times, strict=True)
        ]

    def remedies(self, failed: RankFailed) -> list[dict[str, Any]]:
        """Fewer ranks, if a rank was killed."""
        if "kill" not in failed.cause.lower() or self.stages <= 2:
            return []
        return [{"words": "Run on 2 ranks", "set": {"stages": 2}}]

    def _elsewhere(self) -> str:
        """Where the strips of the last run went, if it was of another scenario."""
        if not self._ran or self._key() == self._ran_key:
            return ""
        stages, microbatches, *_ = self._ran_key
        return f" The last run was of p = {stages}, m = {microbatches}: its strips come back with its values."

    def _key(self) -> tuple[Any, ...]:
        return (self.stages, self.microbatches, self.chunks, self.costs, tuple(self.schedules))

    def copies(self) -> dict[str, str]:
        """The schedules as Python, as commands and as JSON."""
        return pipeline_copies(self._orders, Costs.parse(self.costs, self.latency))

    @property
    def figure(self) -> Figure:
        """The picture as a plotly figure."""
        from widgets.figures import pipeline_figure

        return pipeline_figure(self.picture, self.measured)

    def png(self) -> bytes:
        """The picture for viewers without a kernel."""
        return pipeline_png(self.picture, self.measured)
