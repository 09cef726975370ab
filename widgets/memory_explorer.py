"""MemoryExplorer: what a training step keeps on one GPU, and a real step's peak beside formula and trace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import traitlets as T

from playbook.pictures.copies import scenario_copies
from playbook.pictures.memory import memory_picture, memory_view
from playbook.pictures.memory_run import MeasuredMemory, StandIn, measured_data, predicted, stand_in, with_run
from playbook.spec import Scenario, presets
from playbook.spec.recipe import RECIPES
from widgets.controls import segments, select, slider
from widgets.pool import Task
from widgets.running import RunningExplorer
from widgets.stills import memory_png

if TYPE_CHECKING:
    from playbook.pictures.memory import MemoryView
    from playbook.runtime.run import Run

RANKS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
SEQUENCES = (512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)
STEPS = {"building the model": 0.1, "warming up": 0.3, "counting bytes": 0.6, "taking the time": 0.9}
"""Part of a real step's run that is done when a phase begins."""
FRAMEWORKS = (("torch", "PyTorch"), ("transformers", "Hugging Face"), ("textbook", "textbook"))


class MemoryExplorer(RunningExplorer):
    """Model state under each ZeRO stage and one step over time, against the memory of a GPU."""

    CONTROLS = (
        "model",
        "recipe",
        "ranks",
        "zero",
        "sequence",
        "micro_batch",
        "recompute",
        "framework",
        "gpu",
    )
    VIEW = "memory"

    model = T.Unicode("llama-3.1-70b", help="Preset, or path of a Hugging Face config.json.").tag(
        sync=True, control=select("Model", [(name, name) for name in presets.names("models")])
    )
    recipe = T.Unicode("fsdp2-mixed", help="Bytes per parameter of weight, gradient and optimizer.").tag(
        sync=True,
        control=select("Recipe", [(name, f"{name}, {one.state_bytes} B") for name, one in RECIPES.items()]),
    )
    ranks = T.Int(64, help="Data-parallel ranks that share the state.").tag(
        sync=True, control=slider("Ranks N", RANKS)
    )
    zero = T.Int(3, help="ZeRO stage of the step drawn: 0 is DDP, 3 is FSDP2.").tag(
        sync=True, control=segments("Step of", [("0", "DDP"), ("1", "Z-1"), ("2", "Z-2"), ("3", "Z-3")])
    )
    sequence = T.Int(4096, help="Tokens of a sequence.").tag(sync=True, control=slider("Sequence", SEQUENCES))
    micro_batch = T.Int(1, help="Sequences of a rank's forward.").tag(
        sync=True, control=slider("Micro-batch", range(1, 17))
    )
    recompute = T.Unicode("full", help="What backward computes again instead of keeping it.").tag(
        sync=True, control=segments("Recompute", [(name, name) for name in ("none", "selective", "full")])
    )
    framework = T.Unicode("torch", help="Whose buffers are counted.").tag(
        sync=True, control=select("Framework", FRAMEWORKS)
    )
    gpu = T.Unicode("h100", help="Device whose memory, as its driver reports it, is the limit.").tag(
        sync=True, control=select("GPU", [(name, name.upper()) for name in presets.names("gpus")])
    )

    def __init__(self, model: str = "llama-3.1-70b", **given: Any) -> None:
        self._view: MemoryView | None = None
        self._ran: dict[Scenario, MeasuredMemory] = {}
        self._running: StandIn | None = None
        self._step = 0.0
        super().__init__(model=model, **given)

    def draw(self) -> dict[str, Any]:
        """Picture of the scenario, with the real step of its stand-in where that ran."""
        self._view = memory_view(
            self.model,
            ranks=self.ranks,
            zero=self.zero,
            sequence=self.sequence,
            micro_batch=self.micro_batch,
            recipe=self.recipe,
            recompute=self.recompute,
            framework=self.framework,
            gpu=self.gpu,
        )
        known, words = self.known()
        return {
            "picture": memory_picture(self._view, known),
            "measured": measured_data(known),
            "actions": [
                {"name": "run", "label": "Run a real step", "help": words, "off": known.stand_in is None}
            ],
            "note": self._view.note or words,
        }

    def known(self) -> tuple[MeasuredMemory, str]:
        """What real ranks have told of the stand-in of the scenario shown, and what Run does, in words."""
        assert self._view is not None
        try:
            chosen = stand_in(self._view.scenario)
        except ValueError as refused:
            return MeasuredMemory(), str(refused)
        found = self._ran.get(chosen.scenario)
        return found or predicted(
            chosen
        ), f"A real step of {chosen.words}. Its formula and trace stand in its own row."

    def task(self, name: str) -> Task:
        """One step of the stand-in on real ranks."""
        from playbook.runtime.strategy_run import run_on_rank, strategy_run

        assert self._view is not None
        chosen = stand_in(self._view.scenario)
        ranks = chosen.scenario.world
        run = strategy_run(chosen.strategy, ranks, by="library", parity="off", repeats=1, **chosen.levers)
        self._running, self._step = chosen, 0.0
        return Task(
            ranks=ranks,
            work=run_on_rank,
            args=(run,),
            phases=("a real step",),
            what=f"a real step of {chosen.words}.",
        )

    def take(self, events: Sequence[dict[str, Any]]) -> None:
        """Note how far the step has come."""
        for event in events:
            if event["kind"] == "phase" and event["name"] in STEPS:
                self._step = STEPS[event["name"]]

    def progress(self) -> Sequence[float]:
        """Part of the step that is done."""
        return [self._step]

    def finish(self, run: Run) -> None:
        """Take the peak by term of the rank with the highest."""
        assert self._running is not None
        self._ran[self._running.scenario] = with_run(
            predicted(self._running), run.values, f"tracked:{run.backend}"
        )

    def copies(self) -> dict[str, str]:
        """The scenario as Python, as command and as JSON."""
        assert self._view is not None
        return scenario_copies(self._view.scenario)

    def png(self) -> bytes:
        """The picture for viewers without a kernel."""
        return memory_png(self.picture, self.measured)
