"""PipelineExplorer: schedules stacked on one clock, and the same orders run by real ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import traitlets as T

from playbook.pictures.pipeline_emulation import emulation_levers, run_note, unit_seconds
from playbook.pictures.pipeline_files import pipeline_copies
from playbook.pictures.pipeline_orders import TITLES, TimedOrder, title_of
from playbook.pictures.pipeline_run import ActionTime, MeasuredOrder, measured_data, measured_order
from playbook.pictures.pipeline_scene import Asked, Scene, scene_of
from playbook.program.schedule import Schedule, schedule
from playbook.program.simulated_timeline import KIND_WORDS
from playbook.schedules import find_plan, plans
from playbook.spec import presets
from widgets.controls import field, picks, segments, select, slider
from widgets.pool import Task
from widgets.running import RunningExplorer
from widgets.stills import pipeline_png

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from playbook.runtime.errors import RankFailed

STAGES = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48, 64)
MICROBATCHES = (*range(1, 9), 10, 12, 14, 16, 20, 24, 28, 32, 48, 64, 96, 128, 160, 192, 256, 384, 512)
LATENCIES = tuple(round(0.1 * tenth, 1) for tenth in range(21))
OVERLAPS = tuple(round(0.05 * twentieth, 2) for twentieth in range(10, 21))
CAPS = (0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32, 48, 64)
FILES = ("png", "csv", "order", "trace")
MORE = "More: chunks, latency, recompute, cut"


class PipelineExplorer(RunningExplorer):
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
        sync=True,
        control=segments("Shown", [("forward", "forward"), ("step", "whole step"), ("scatter", "scatter")]),
    )
    stages = T.Int(4, help="Pipeline ranks p.").tag(sync=True, control=slider("Stages p", STAGES))
    microbatches = T.Int(8, help="Micro-batches m of one step.").tag(
        sync=True, control=slider("Micro-batches m", MICROBATCHES)
    )
    schedules = T.List(T.Any(), ["gpipe", "1f1b"], help="Schedules shown, at most four.").tag(
        sync=True,
        control=picks("Schedules shown", [(name, title_of(name)) for name in TITLES if name in plans()]),
    )
    model = T.Unicode("units", help="Costs in units, or those of a model in seconds and GB.").tag(
        sync=True,
        control=select(
            "Costs of",
            [
                ("units", "units, own"),
                ("toy-15m", "toy-15m"),
                ("llama-3.1-8b", "Llama 3.1 8B"),
                ("llama-3.1-70b", "Llama 3.1 70B, TP 8"),
            ],
        ),
    )
    gpu = T.Unicode("h100", help="GPU whose memory is the limit.").tag(
        sync=True, control=select("GPU", [(name, name.upper()) for name in presets.names("gpus")])
    )
    costs = T.Unicode("1 : 1 : 1", help="Forward, backward for inputs, backward for weights.").tag(
        sync=True, control=field("Costs F : I : W")
    )
    chunks = T.Int(2, help="Chunks v of each rank, for the schedules that take any number.").tag(
        sync=True, control=slider("Chunks v", range(1, 9), more=MORE)
    )
    overlap = T.Float(1.0, help="Cost of an overlapped forward and backward, as a part of F + B.").tag(
        sync=True, control=slider("Overlapped F & B, of F + B", OVERLAPS, "plain", more=MORE)
    )
    latency = T.Float(0.0, help="Delay of a hop between ranks, in the units of the costs.").tag(
        sync=True, control=slider("Latency per hop", LATENCIES, "plain", more=MORE)
    )
    recompute = T.Unicode("off", help="Whether backward runs the forward again.").tag(
        sync=True, control=segments("Recompute", [("off", "off"), ("on", "on")], more=MORE)
    )
    cut = T.Unicode("equal", help="What the stages cost.").tag(
        sync=True,
        control=select(
            "Stage cut",
            [("equal", "equal"), ("heavy head", "heavy head, + 1/2"), ("own", "own numbers")],
            more=MORE,
        ),
    )
    stage_costs = T.Unicode("1 1 1 1.5", help="Cost of each stage against an equal one.").tag(
        sync=True, control=field("Cost of each stage", more=MORE)
    )
    straggler = T.Unicode("", help="A rank and how many times slower it is, such as 2 × 1.5.").tag(
        sync=True, control=field("Slow rank × factor", more=MORE)
    )
    cap = T.Float(0.0, help="Most that a rank may hold, in activations of a micro-batch (A); 0: no cap.").tag(
        sync=True, control=slider("Memory cap, A (0: none)", CAPS, "plain", more=MORE)
    )

    def __init__(self, **given: Any) -> None:
        self._own: dict[str, Schedule] = {}
        self._scene: Scene | None = None
        self._ran: dict[str, MeasuredOrder] = {}
        self._running: tuple[TimedOrder, ...] = ()
        self._times: list[dict[str, ActionTime]] = []
        self._waits: list[dict[str, float]] = []
        self._place: dict[int, int] = {}
        self._ran_asked: Asked | None = None
        self._unit_s = 0.0
        if "schedules" in given:
            given["schedules"] = [self._named(one) for one in given["schedules"]]
            for own in (self._own[name] for name in given["schedules"] if name in self._own):
                given.setdefault("stages", own.stages)
                given.setdefault("microbatches", own.microbatches)
        super().__init__(**given)

    @T.validate("schedules")
    def _check_schedules(self, proposal: Any) -> list[str]:
        return [self._named(one) for one in proposal["value"]]

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
        ran = self._ran if asked.same_run(self._ran_asked) else {}
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
                    "label": f"Run on {self.stages} ranks",
                    "help": "Real processes and messages",
                    "off": not able,
                },
                *([] if asked.shown == "scatter" else [PLAY]),
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
        orders = self._running = tuple(self._scene.orders)
        self._unit_s = unit_seconds(orders)
        runs = [
            strategy_run("pp", self.stages, parity="off", repeats=1, **emulation_levers(one, self._unit_s))
            for one in orders
        ]
        self._ran_asked, self._ran, self._place = self.asked(), {}, {}
        self._times, self._waits = [{} for _ in runs], [{} for _ in runs]
        titles = tuple(one.title for one in orders)
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
            elif event["kind"] == "action":
                self._take_action(event)
        for one, times, waits in zip(self._running, self._times, self._waits, strict=True):
            if times:
                self._ran[one.order.name] = measured_order(
                    one, times.values(), self._unit_s, "emulated", waits
                )

    def _take_action(self, event: dict[str, Any]) -> None:
        place, name = self._place[event["rank"]], event["name"]
        if event["what"] in KIND_WORDS:
            self._times[place][name] = (name, event["start_s"], event["duration_s"])
        elif event["what"] == "wait":
            self._waits[place][name] = event["duration_s"]

    def progress(self) -> Sequence[float]:
        """Part of each schedule's actions that has run."""
        return [
            len(times) / one.timed.start.size for one, times in zip(self._running, self._times, strict=True)
        ]

    def remedies(self, failed: RankFailed) -> list[dict[str, Any]]:
        """Fewer ranks, if a rank was killed."""
        if "kill" not in failed.cause.lower() or self.stages <= 2:
            return []
        return [{"words": "Run on 2 ranks", "set": {"stages": 2}}]

    def _elsewhere(self, asked: Asked) -> str:
        """Where the strips of the last run went, if it was of another scenario."""
        last = self._ran_asked
        if not self._ran or last is None or asked.same_run(last):
            return ""
        size = f"p = {last.setting.stages}, m = {last.setting.microbatches}"
        return f" The last run was of {size}: its strips come back with its values."

    def on_export(self, message: dict[str, Any]) -> None:
        """Send the picture as a file; the front end offers it."""
        form = str(message["form"])
        if form not in FILES:
            raise ValueError(f"form={form!r}: use one of {', '.join(FILES)}")
        assert self._scene is not None
        files = [("pipeline.png", self.png())] if form == "png" else self._scene.files(form)
        for name, content in files:
            self.send({"kind": "file", "name": name, "type": _type_of(name)}, [content])

    def to_png(self, path: str | Path) -> Path:
        """Write the picture as PNG; return where."""
        return _write(path, self.png())

    def to_csv(self, path: str | Path) -> Path:
        """Write every action of every schedule shown with its times as CSV; return where."""
        assert self._scene is not None
        return _write(path, self._scene.files("csv")[0][1])

    def to_chrome_trace(self, path: str | Path) -> Path:
        """Write all schedules shown as one trace for chrome://tracing or Perfetto; return where."""
        assert self._scene is not None
        return _write(path, self._scene.files("trace")[0][1])

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


PLAY = {"name": "play", "label": "▶ Play", "help": "A line runs over the clock; Space in the picture"}


def _type_of(name: str) -> str:
    return {"png": "image/png", "csv": "text/csv", "json": "application/json"}[name.rsplit(".", 1)[-1]]


def _write(path: str | Path, content: bytes) -> Path:
    path = Path(path)
    path.write_bytes(content)
    return path
