"""PipelineExplorer: schedules stacked on one clock, and the same orders run by real ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import traitlets as T

from playbook.pictures.pipeline_emulation import emulation_levers, run_note, unit_seconds
from playbook.pictures.pipeline_files import pipeline_copies
from playbook.pictures.pipeline_model import CUTS as MODEL_CUTS
from playbook.pictures.pipeline_run import measured_data
from playbook.pictures.pipeline_scene import Asked, Scene, scene_of
from playbook.pictures.pipeline_setting import CUTS
from playbook.pictures.pipeline_strips import Strips
from playbook.program.schedule import Schedule, schedule
from playbook.schedules import find_plan, plans
from playbook.units import counted
from widgets import pipeline_controls as look
from widgets.pool import Task
from widgets.running import RunningExplorer
from widgets.stills import pipeline_png
from widgets.takeaway import Takeaway

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from playbook.runtime.errors import RankFailed


class PipelineExplorer(RunningExplorer, Takeaway):
    """Pipeline schedules on one clock: blocks, idle time and memory of each rank.

    Schedules are names, paths of CSV files in torch's format, or `Schedule` objects.
    """

    CONTROLS = (
        "shown",
        "stages",
        "microbatches",
        "schedules",
        "model",
        "gpu",
        "costs",
        "chunks",
        "overlap",
        "latency",
        "recompute",
        "cut",
        "stage_costs",
        "straggler",
        "cap",
    )
    VIEW = "pipeline"
    ANSWERS: ClassVar[tuple[str, ...]] = (*RunningExplorer.ANSWERS, "export")

    shown = T.Unicode("step", help="The forward pass alone, the whole step, or throughput over memory.").tag(
        sync=True, control=look.SHOWN
    )
    stages = T.Int(4, help="Pipeline ranks p.").tag(sync=True, control=look.STAGES)
    microbatches = T.Int(8, help="Micro-batches m of one step.").tag(sync=True, control=look.MICROBATCHES)
    schedules = T.List(T.Any(), ["gpipe", "1f1b"], help="Schedules shown, at most four.").tag(
        sync=True, control=look.SCHEDULES
    )
    model = T.Unicode("units", help="Costs in units, or those of a model in seconds and GB.").tag(
        sync=True, control=look.MODEL
    )
    gpu = T.Unicode("h100", help="GPU whose memory is the limit.").tag(sync=True, control=look.GPU)
    costs = T.Unicode("1 : 1 : 1", help="Forward, backward for inputs, backward for weights.").tag(
        sync=True, control=look.COSTS
    )
    chunks = T.Int(2, help="Chunks v of each rank, for the schedules that take any number.").tag(
        sync=True, control=look.CHUNKS
    )
    overlap = T.Float(1.0, help="Cost of an overlapped forward and backward, as a part of F + B.").tag(
        sync=True, control=look.OVERLAP
    )
    latency = T.Float(
        0.0, help="Delay of a hop between ranks, in the units of F : I : W, a rank's whole share."
    ).tag(sync=True, control=look.LATENCY)
    recompute = T.Unicode("off", help="Whether backward runs the forward again.").tag(
        sync=True, control=look.RECOMPUTE
    )
    cut = T.Unicode("equal", help="What the stages cost.").tag(sync=True, control=look.CUT)
    stage_costs = T.Unicode("1 1 1 1.5", help="Cost of each stage against an equal one.").tag(
        sync=True, control=look.STAGE_COSTS
    )
    straggler = T.Unicode("", help="A rank and how many times slower it is, such as 2 × 1.5.").tag(
        sync=True, control=look.STRAGGLER
    )
    cap = T.Float(0.0, help="Most that a rank may hold, in activations of a micro-batch (A); 0: no cap.").tag(
        sync=True, control=look.CAP
    )

    def __init__(self, **given: Any) -> None:
        self._own: dict[str, Schedule] = {}
        self._scene: Scene | None = None
        self._ran_asked: Asked | None = None
        self._strips = Strips((), 1.0)
        if "schedules" in given:
            given["schedules"] = [self._named(one) for one in given["schedules"]]
            for own in (self._own[name] for name in given["schedules"] if name in self._own):
                given.setdefault("stages", own.stages)
                given.setdefault("microbatches", own.microbatches)
        super().__init__(**given)

    @T.validate("schedules")
    def _check_schedules(self, proposal: Any) -> list[str]:
        return [self._named(one) for one in proposal["value"]]

    @T.observe("model")
    def _fit_cut(self, change: Any) -> None:
        """Take back a cut that counts only in units, or only for a model, once another is chosen."""
        ways = CUTS if change["new"] == "units" else MODEL_CUTS
        if self._scene is not None and self.cut not in ways:
            self.cut = "equal"

    def _named(self, one: str | Path | Schedule) -> str:
        """Name of a schedule; an order of the user's is kept under its own."""
        if isinstance(one, Schedule):
            # A name of the folder stands for the folder's order, which this need not be.
            own = replace(one, name=f"own {one.name}") if one.name in plans() else one
            self._own[own.name] = own
            return own.name
        if str(one) in self._own:
            return str(one)
        if str(one).lower().endswith(".csv"):
            own = schedule(one)
            self._own[own.name] = own
            return own.name
        if not isinstance(one, str):
            raise TypeError(f"schedules holds {one!r}; give names, paths of CSV files, or schedules")
        return find_plan(one).name

    def draw(self) -> dict[str, Any]:
        """Picture of the schedules shown, with what real ranks did if they ran these."""
        asked = self.asked()
        scene = self._scene = scene_of(asked, self._own)
        ran = self._strips.on_clock_of(scene.orders) if asked.same_run(self._ran_asked) else {}
        data = {
            one.order.name: measured_data(one, ran[one.order.name], scene.scale)
            for one in scene.orders
            if one.order.name in ran
        }
        able = scene.runnable
        return {
            "picture": scene.picture(ran),
            "measured": {"schedules": data} if data else {},
            "actions": [
                {
                    "name": "run",
                    "label": f"Run on {counted(self.stages, 'rank')}",
                    "help": "Real processes and messages",
                    "off": not able,
                },
                *([] if asked.shown == "scatter" else [look.PLAY]),
            ],
            "note": run_note(scene.orders) + self._elsewhere(asked),
        }

    def asked(self) -> Asked:
        """What the controls ask for, checked.

        Raises
        ------
        ValueError
            For a value that has no picture.
        """
        return Asked.read({name: getattr(self, name) for name in self.CONTROLS})

    def options(self) -> dict[str, Any]:
        """Controls only where they count: chunks, overlap, a model's or own numbers."""
        return self.asked().controls(self._own)

    def task(self, name: str) -> Task:
        """All schedules shown, one after the other, on as many ranks as there are stages."""
        from playbook.runtime.several import run_several
        from playbook.runtime.strategy_run import strategy_run

        assert self._scene is not None
        orders = self._scene.orders
        unit_s = unit_seconds(orders)
        runs = [
            strategy_run("pp", self.stages, parity="off", repeats=1, **emulation_levers(one, unit_s))
            for one in orders
        ]
        self._ran_asked, self._strips = self.asked(), Strips(orders, unit_s)
        titles = tuple(one.title for one in orders)
        return Task(
            ranks=self.stages,
            work=run_several,
            args=(runs,),
            phases=titles,
            what=f"{' and '.join(titles)}, action by action.",
            name=" and ".join(titles),
        )

    def take(self, events: Sequence[dict[str, Any]]) -> None:
        """Lay what has run on the blocks."""
        self._strips.take(events)

    def progress(self) -> Sequence[float]:
        """Part of each schedule's actions that has run."""
        return self._strips.progress

    def remedies(self, failed: RankFailed) -> list[dict[str, Any]]:
        """Fewer ranks, if a rank was killed."""
        if "kill" not in failed.cause.lower() or self.stages <= 2:
            return []
        return [{"words": "Run on 2 ranks", "set": {"stages": 2}}]

    def _elsewhere(self, asked: Asked) -> str:
        """Where the strips of the last run went, if it was of another scenario."""
        last = self._ran_asked
        if not self._strips.measured or last is None or asked.same_run(last):
            return ""
        size = f"p = {last.setting.stages}, m = {last.setting.microbatches}"
        return f" The last run was of {size}: its strips come back with its values."

    def files(self, form: str) -> list[tuple[str, bytes]]:
        """The schedules shown as files: `csv` of times, `order` for torch, `trace`."""
        assert self._scene is not None
        return self._scene.files(form)

    def copies(self) -> dict[str, str]:
        """The schedules as Python, as commands and as JSON."""
        assert self._scene is not None
        return pipeline_copies(self._scene.orders, self._scene.asked.setting)

    @property
    def figure(self) -> Figure:
        """The picture as a plotly figure."""
        from widgets.figures import pipeline_figure

        return pipeline_figure(self.picture, self.measured)

    def png(self) -> bytes:
        """The picture for viewers without a kernel."""
        return pipeline_png(self.picture, self.measured)
