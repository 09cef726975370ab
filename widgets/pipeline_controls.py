"""How the controls of PipelineExplorer look; their traits and help texts stand in its class."""

from __future__ import annotations

from playbook.pictures.pipeline_orders import TITLES
from playbook.spec import presets
from widgets.controls import field, picks, segments, select, slider

MORE = "More"
"""Fold over the controls that a first look does not need; the page lists what lies in it, by `brief`."""

_STAGES = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48, 64)
_MICROBATCHES = (*range(1, 9), 10, 12, 14, 16, 20, 24, 28, 32, 48, 64, 96, 128, 160, 192, 256, 384, 512)
_TENTHS = tuple(round(0.1 * tenth, 1) for tenth in range(21))
_TWENTIETHS = tuple(round(0.05 * twentieth, 2) for twentieth in range(10, 21))
_CAPS = (0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32, 48, 64)

SHOWN = segments("Shown", [("forward", "forward"), ("step", "whole step"), ("scatter", "scatter")])
STAGES = slider("Stages p", _STAGES)
MICROBATCHES = slider("Micro-batches m", _MICROBATCHES)
SCHEDULES = picks("Schedules shown", list(TITLES.items()))
MODEL = select(
    "Costs of",
    [
        ("units", "units, own"),
        ("toy-15m", "toy-15m"),
        ("llama-3.1-8b", "Llama 3.1 8B"),
        ("llama-3.1-70b", "Llama 3.1 70B, TP 8"),
    ],
)
GPU = select("GPU", [(name, name.upper()) for name in presets.names("gpus")])
COSTS = field("Costs F : I : W")
CHUNKS = slider("Chunks v", range(1, 9), more=MORE, brief="chunks")
OVERLAP = slider("Overlapped F & B, of F + B", _TWENTIETHS, "plain", more=MORE, brief="overlap")
LATENCY = slider("Latency per hop", _TENTHS, "plain", more=MORE, brief="latency")
RECOMPUTE = segments("Recompute", [("off", "off"), ("on", "on")], more=MORE, brief="recompute")
CUT = select(
    "Stage cut",
    [("equal", "equal"), ("heavy head", "heavy head, + 1/2"), ("own", "own numbers")],
    more=MORE,
    brief="cut",
)
STAGE_COSTS = field("Cost of each stage", more=MORE, brief="stage costs")
STRAGGLER = field("Slow rank × factor", more=MORE, brief="slow rank")
CAP = slider("Memory cap, A (0: none)", _CAPS, "plain", more=MORE, brief="cap")

PLAY = {"name": "play", "label": "▶ Play", "help": "A line runs over the clock; Space in the picture"}
