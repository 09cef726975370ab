"""A step of a small model on fake tensors, joined with its program: what tests of several traces share."""

from typing import Any

import playbook as pb
from playbook.compare import compare
from playbook.runtime.trace_step import record_scenario
from playbook.runtime.traced_walk import walk
from playbook.spec import Model, Scenario

SHAPE: dict[str, Any] = {
    "name": "held out",
    "family": "llama",
    "max_sequence": 256,
    "layers": 4,
    "hidden": 192,
    "heads": 6,
    "kv_heads": 2,
    "head_dim": 32,
    "ffn": 448,
    "vocabulary": 640,
}
"""Sizes of which no two are alike."""


def shape(**changes: Any) -> Model:
    """The small model with some fields changed."""
    return Model(**{**SHAPE, **changes})


def peaks_and_join(case: Scenario, rank: int) -> tuple[int, int, Any]:
    """Bytes of the predicted and of the traced peak, and the comparison of their operations."""
    record, program = record_scenario(case, rank), pb.program(case, rank)
    found = compare(program, dict.fromkeys(record.ids, 0))
    return program.memory().peak_bytes, walk(record).peak_bytes, found
