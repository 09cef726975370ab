"""How the controls of MemoryExplorer look; their traits and help texts stand in its class."""

from __future__ import annotations

from playbook.frameworks import policies
from playbook.pictures.models import model_choices
from playbook.pictures.pipeline_orders import TITLES
from playbook.spec import presets
from playbook.spec.recipe import RECIPES
from widgets.controls import field, paste, segments, select, slider

AXES = "More axes"
"""Fold of the degrees that a first look leaves at 1, and of what comes with them."""
STEP = "More of the step"
OWN = "Own model"
FRAMEWORKS = {
    "torch": "PyTorch",
    "transformers": "Hugging Face",
    "megatron": "Megatron-LM",
    "deepspeed": "DeepSpeed",
    "nanotron": "Nanotron",
    "torchtitan": "torchtitan",
    "textbook": "the papers (textbook)",
}
"""Words for those that may be there, in their order; what is there is what the folder holds."""

_RANKS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_DEGREES = (1, 2, 4, 8, 16, 32, 64)
_SEQUENCES = (512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)


def _same(*names: str) -> list[tuple[str, str]]:
    """Options that are shown as they are."""
    return [(name, name) for name in names]


MODEL = select("Model", model_choices())
RECIPE = select("Recipe", [(name, f"{name}, {one.state_bytes} B") for name, one in RECIPES.items()])
RANKS = slider("Ranks N", _RANKS)
ZERO = segments("Step of", [(0, "DDP"), (1, "Z-1"), (2, "Z-2"), (3, "Z-3")])
SEQUENCE = slider("Sequence", _SEQUENCES)
MICRO_BATCH = slider("Micro-batch", range(1, 17))
RECOMPUTE = segments("Recompute", _same("none", "selective", "full"))
FRAMEWORK = select("Framework", [one for one in FRAMEWORKS.items() if one[0] in policies()])
GPU = select("GPU", [(name, name.upper()) for name in presets.names("gpus")])

TP = slider("Tensor tp", _DEGREES, more=AXES, brief="tp")
SEQUENCE_PARALLEL = segments("Sequence parallel", ((True, "on"), (False, "off")), AXES, "SP")
CP = slider("Context cp", _DEGREES, more=AXES, brief="cp")
EP = slider("Expert ep", _DEGREES, more=AXES, brief="ep")
PP = slider("Pipeline pp", _DEGREES, more=AXES, brief="pp")
SCHEDULE = select("Schedule", list(TITLES.items()), more=AXES, brief="schedule")
CHUNKS = slider("Chunks v", range(1, 9), more=AXES, brief="chunks")
STAGE_LAYERS = field("Layers of each stage", more=AXES, brief="stage layers")
MICROBATCHES = slider("Micro-batches", (0, *_DEGREES, 128), "auto", AXES, "micro-batches")

ATTENTION = segments("Attention", _same("flash", "math"), STEP, "attention")
LOSS = segments("Loss", _same("eager", "chunked"), STEP, "loss")

CONFIG = paste("Text of a config.json", more=OWN, brief="paste a config.json")
