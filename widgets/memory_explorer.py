"""MemoryExplorer: what a training step keeps on one GPU, and a real step's peak beside formula and trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import traitlets as T

from playbook.pictures.copies import scenario_copies
from playbook.pictures.memory import memory_picture
from playbook.pictures.memory_run import (
    MeasuredMemory,
    StandIn,
    TracedStep,
    measured_data,
    predicted,
    stand_in,
    with_step,
)
from playbook.pictures.memory_view import memory_view
from playbook.runtime.trace_scope import check_traceable
from playbook.spec import Scenario
from widgets import memory_controls as look
from widgets.controls import descriptors
from widgets.memory_options import options, refusal, remark
from widgets.pool import Task, pool_ranks
from widgets.running import RunningExplorer
from widgets.stills import memory_png

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from playbook.pictures.memory_view import MemoryView
    from playbook.runtime.run import Run

STEPS = {
    "building the model": 0.1,
    "warming up": 0.3,
    "counting bytes": 0.6,
    "taking the time": 0.9,
    "tracing": 1.5,
}
"""Part of a real step's run that is done when a phase begins."""
SOURCE = "tracked:gloo"
TRACE = "Run the real code of rank {rank} on fake tensors, without a GPU"


class MemoryExplorer(RunningExplorer):
    """Model state under each ZeRO stage and one step over time, against the memory of a GPU."""

    CONTROLS = (
        *("model", "recipe", "ranks", "zero", "sequence", "micro_batch", "recompute", "framework", "gpu"),
        *("tp", "sequence_parallel", "cp", "ep"),
        *("pp", "schedule", "chunks", "stage_layers", "microbatches"),
        *("attention", "loss", "config"),
    )
    VIEW = "memory"

    model = T.Unicode("llama-3.1-70b", help="Preset, or path of a Hugging Face config.json.").tag(
        sync=True, control=look.MODEL
    )
    recipe = T.Unicode("fsdp2-mixed", help="Bytes per parameter of weight, gradient and optimizer.").tag(
        sync=True, control=look.RECIPE
    )
    ranks = T.Int(64, help="Data-parallel ranks that share the state.").tag(sync=True, control=look.RANKS)
    zero = T.Int(3, help="ZeRO stage of the step drawn: 0 is DDP, 3 is FSDP2.").tag(
        sync=True, control=look.ZERO
    )
    sequence = T.Int(4096, help="Tokens of a sequence.").tag(sync=True, control=look.SEQUENCE)
    micro_batch = T.Int(1, help="Sequences of a rank's forward.").tag(sync=True, control=look.MICRO_BATCH)
    recompute = T.Unicode("full", help="What backward computes again instead of keeping it.").tag(
        sync=True, control=look.RECOMPUTE
    )
    framework = T.Unicode("torch", help="Whose buffers are counted.").tag(sync=True, control=look.FRAMEWORK)
    gpu = T.Unicode("h100", help="Device whose memory, as its driver reports it, is the limit.").tag(
        sync=True, control=look.GPU
    )

    tp = T.Int(1, help="Tensor parallel ranks.").tag(sync=True, control=look.TP)
    sequence_parallel = T.Bool(True, help="Tensor parallel ranks split the norms' activations too.").tag(
        sync=True, control=look.SEQUENCE_PARALLEL
    )
    cp = T.Int(1, help="Context parallel ranks, which share a sequence.").tag(sync=True, control=look.CP)
    ep = T.Int(1, help="Expert parallel ranks, among those that exist.").tag(sync=True, control=look.EP)
    pp = T.Int(1, help="Pipeline ranks, which share the layers.").tag(sync=True, control=look.PP)
    schedule = T.Unicode(
        "1f1b", help="Order in which pipeline ranks run micro-batches: how many each holds at once."
    ).tag(sync=True, control=look.SCHEDULE)
    chunks = T.Int(2, help="Chunks v of each pipeline rank, for the schedules that take any number.").tag(
        sync=True, control=look.CHUNKS
    )
    stage_layers = T.Unicode(
        "", help="Layers of each stage in order of depth, such as 22,20,20,18; empty: equal ones."
    ).tag(sync=True, control=look.STAGE_LAYERS)
    microbatches = T.Int(0, help="Micro-batches of a step; 0 is as many as pipeline ranks.").tag(
        sync=True, control=look.MICROBATCHES
    )

    attention = T.Unicode("flash", help="Flash attention keeps no scores, math does.").tag(
        sync=True, control=look.ATTENTION
    )
    loss = T.Unicode(
        "eager", help="Logits at once: all (eager), some rows (chunked) or a tensor rank's words (parallel)."
    ).tag(sync=True, control=look.LOSS)
    config = T.Unicode("", help="A Hugging Face config.json, pasted; it then is the model.").tag(
        sync=True, control=look.CONFIG
    )

    def __init__(self, model: str = "llama-3.1-70b", **given: Any) -> None:
        self._view: MemoryView | None = None
        self._known: dict[Scenario, MeasuredMemory] = {}
        self._traces: dict[Scenario, TracedStep] = {}
        self._target: StandIn | Scenario | None = None
        self._memories: list[dict[str, Any]] = []
        self._step = 0.0
        if isinstance(given.get("stage_layers"), list | tuple):  # as `Layout` takes them
            given["stage_layers"] = ",".join(map(str, given["stage_layers"]))
        super().__init__(model=model, **given)

    def options(self) -> dict[str, Any]:
        """What controls say of the picture: not in use, or not as asked for."""
        return options(self._view, {name: getattr(self, name) for name in self.CONTROLS})

    def _refuse(self, control: str, words: str) -> None:
        """Say why a value is refused, beside the controls that count now: another may have to change."""
        with self._lock, self.hold_sync():
            self.controls = descriptors(self.traits(), self.CONTROLS, self.options())
            super()._refuse(control, words)

    def draw(self) -> dict[str, Any]:
        """Picture of the scenario, with its trace and with the real step of its stand-in where they ran."""
        given = {name: getattr(self, name) for name in self.CONTROLS if name != "model"}
        self._view = memory_view(self.model, **given)
        known, words = self.known()
        untraceable = refusal(check_traceable, self._view.scenario)
        trace = TRACE.format(rank=self._view.rank)
        return {
            "picture": memory_picture(self._view, known),
            "measured": measured_data(known),
            "actions": [
                {"name": "run", "label": "Run a real step", "help": words, "off": known.stand_in is None},
                {"name": "trace", "label": "Trace", "help": untraceable or trace, "off": bool(untraceable)},
            ],
            "note": remark(self._view, words, known.stand_in is None),
        }

    def known(self) -> tuple[MeasuredMemory, str]:
        """What trace and real ranks have told so far, and what Run does, in words."""
        assert self._view is not None
        shown = self._traces.get(self._view.scenario)
        try:
            chosen = stand_in(self._view.scenario)
        except ValueError as refused:
            return MeasuredMemory(shown=shown), str(refused)
        known = self._known.get(chosen.scenario) or predicted(chosen)
        words = f"Run takes a real step of {chosen.words}. Its formula and trace stand in its own row."
        return replace(known, shown=shown), words

    def task(self, name: str) -> Task:
        """One step of the stand-in on real ranks and its trace, or the trace of the scenario shown."""
        assert self._view is not None
        self._step, self._memories = 0.0, []
        return (
            self._trace_task(self._view.scenario) if name == "trace" else self._run_task(self._view.scenario)
        )

    def _run_task(self, shown: Scenario) -> Task:
        from playbook.runtime.beside_trace import run_beside_trace
        from playbook.runtime.strategy_run import strategy_run

        self._target = chosen = stand_in(shown)
        ranks = chosen.scenario.world
        run = strategy_run(chosen.strategy, ranks, by="library", parity="off", repeats=1, **chosen.levers)
        what = f"a real step of {chosen.words}."
        return Task(
            ranks=ranks, work=run_beside_trace, args=(run,), phases=("a real step", "its trace"), what=what
        )

    def _trace_task(self, shown: Scenario) -> Task:
        from playbook.runtime.beside_trace import trace_on_rank

        self._target = shown
        assert self._view is not None
        ranks, rank = pool_ranks(default=2), self._view.rank
        what = f"the real code of rank {rank} of {shown.world} on fake tensors; a large model takes a minute."
        return Task(ranks=ranks, work=trace_on_rank, args=(shown, rank), phases=("trace",), what=what)

    def take(self, events: Sequence[dict[str, Any]]) -> None:
        """Note how far the step has come; its memory is drawn before the trace is there."""
        for event in events:
            if event["kind"] == "phase" and event["name"] in STEPS:
                self._step = max(self._step, STEPS[event["name"]])
            elif event["kind"] == "stepped":
                self._memories.append(event)
        if isinstance(self._target, StandIn) and len(self._memories) == self._target.scenario.world:
            self._step = max(self._step, 1.0)
            self._known[self._target.scenario] = with_step(predicted(self._target), self._memories, SOURCE)

    def progress(self) -> Sequence[float]:
        """Part of the step that is done, and of its trace."""
        tracing = max(0.0, self._step - 1.0)
        return [tracing] if isinstance(self._target, Scenario) else [min(1.0, self._step), tracing]

    def finish(self, run: Run) -> None:
        """Take the trace."""
        if isinstance(self._target, Scenario):
            self._traces[self._target] = TracedStep.of(run.values[0])
            return
        assert self._target is not None
        found = with_step(predicted(self._target), [value["memory"] for value in run.values], SOURCE)
        traced = run.values[0]["trace"]
        if not isinstance(traced, str):
            found = replace(found, traced=TracedStep.of(traced).terms)
        self._known[self._target.scenario] = found

    def on_trace(self, _: Any = None) -> None:
        """Answer the Trace button."""
        self.run(button="trace")

    def copies(self) -> dict[str, str]:
        """The scenario as Python, as command and as JSON."""
        assert self._view is not None
        return scenario_copies(self._view.scenario)

    @property
    def figure(self) -> Figure:
        """The picture as a plotly figure."""
        from widgets.figures import memory_figure

        return memory_figure(self.picture, self.measured)

    def png(self) -> bytes:
        """The picture for viewers without a kernel."""
        return memory_png(self.picture, self.measured)
