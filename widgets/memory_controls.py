"""What the controls of MemoryExplorer offer."""

from __future__ import annotations

from collections.abc import Callable

from playbook.frameworks import policies
from playbook.spec import Scenario

RANKS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
DEGREES = (1, 2, 4, 8, 16, 32, 64)
AXES = "More axes"
"""Fold of the degrees that a first look leaves at 1."""
SEQUENCES = (512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)
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
PASTED = "Not in use: the pasted config.json is the model."


def frameworks() -> list[tuple[str, str]]:
    """Name and words of every framework that is there."""
    return [one for one in FRAMEWORKS.items() if one[0] in policies()]


def refusal(check: Callable[[Scenario], None], scenario: Scenario) -> str:
    """Why a scenario is refused, in words; empty if it is not."""
    try:
        check(scenario)
    except ValueError as refused:
        return str(refused)
    return ""
