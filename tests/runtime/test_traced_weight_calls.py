"""A split backward whose W goes call by call: the formula against torch's own schedules, on fake tensors."""

from typing import Any

import numpy as np
import pytest

import playbook as pb
from playbook.runtime.trace_step import record_scenario
from playbook.runtime.traced_walk import walk
from playbook.spec import Layout, Scenario, Workload
from tests.runtime.joins import peaks_and_join, shape

pytest.importorskip("torch")

FULL, SELECTIVE = {"recompute": "full"}, {"recompute": "selective"}
BIASED = {"qkv_bias": True, "output_bias": True, "mlp_bias": True}


def scenario(work: dict, changes: dict[str, Any] | None = None, **layout: Any) -> Scenario:
    given: dict[str, Any] = {"recipe": "fp32", "sequence": 256, "kernels": "cpu", "global_batch": 4, **work}
    return Scenario(shape(**(changes or {})), Workload(**given), Layout(**layout), framework="torch")


ZB: dict[str, Any] = {"schedule": "zb-h1"}
V: dict[str, Any] = {"schedule": "zbv"}
DUAL: dict[str, Any] = {"schedule": "dualpipe-v"}
INTERLEAVED: dict[str, Any] = {"schedule": "interleaved-zero-bubble", "chunks": 2}
CASES = {
    "middle stage": (scenario(FULL, {"layers": 6}, pp=3, **ZB), 1),
    "last stage, half precision": (scenario({**FULL, "recipe": "bf16"}, pp=2, **ZB), 1),
    "last stage, selective": (scenario(SELECTIVE, pp=2, **ZB), 1),
    "biases, norms of queries and keys": (scenario(FULL, {**BIASED, "qk_norm": True}, pp=2, **ZB), 1),
    "V, both ends": (scenario(FULL, pp=2, **V), 0),
    "V, stages that hand over": (scenario(FULL, pp=2, **V), 1),
    "V, stages that hand over, none": (scenario({}, pp=2, **V), 1),
    "interleaved": (scenario(FULL, pp=2, **INTERLEAVED), 1),
    "backwards in one and in two": (scenario(FULL, pp=2, **DUAL), 1),
}


@pytest.mark.parametrize("name", CASES)
def test_the_peak_is_the_traced_one_and_every_operation_joins(name):
    # Left out are token ids, labels and single numbers, some thousand bytes of so small a model.
    case, rank = CASES[name]
    predicted, traced, found = peaks_and_join(case, rank)
    assert predicted == pytest.approx(traced, rel=5e-3)
    assert (found.only_predicted, found.only_observed) == ((), ())


def test_memory_is_the_traced_one_at_every_operation_of_w():
    case, rank = CASES["middle stage"]
    record, program = record_scenario(case, rank), pb.program(case, rank)
    levels, seen = program.memory().totals, walk(record).levels.sum(axis=1)
    traced = {str(row.id): seen[row.event] for row in record.rows}
    ids = program.ids()
    begin, end = (
        ids.index(f"m1/W/{name}#0") for name in ("layers.2.input_layernorm/mul", "layers.3.mlp.down_proj/mm")
    )
    found = np.array([levels[row] / traced[ids[row]] - 1 for row in range(begin, end + 1)])
    assert abs(found).max() < 1e-2
