"""DDP and FSDP2 over tensor-parallel ranks: the formula against torch's own code on fake tensors."""

import pytest

import playbook as pb
from playbook.compare import compare
from playbook.program.ids import parse
from playbook.runtime.trace_step import record_scenario
from playbook.runtime.traced_walk import walk
from playbook.spec import Layout, Model, Scenario, Workload

pytest.importorskip("torch")

SHAPE = {
    "name": "held out",
    "family": "llama",
    "max_sequence": 512,
    "layers": 4,
    "hidden": 256,
    "heads": 8,
    "kv_heads": 4,
    "head_dim": 32,
    "ffn": 512,
    "vocabulary": 4096,
}


def scenario(work: dict | None = None, model: dict | None = None, **layout) -> Scenario:
    split, given = Layout(**layout), {"recipe": "bf16", "sequence": 64, **(work or {})}
    count = given.pop("microbatches", 1)
    workload = Workload(global_batch=split.dp * count, **given)
    return Scenario(Model(**{**SHAPE, **(model or {})}), workload, split, framework="torch")


TIED, QWEN = {"tied": True}, {"tied": True, "qk_norm": True}
LATE = {"microbatches": 2, "gradient_sync": "last"}
STAGED = {"microbatches": 4, "gradient_sync": "last"}
CASES = {
    "whole table beside its share": scenario(tp=2, dp=2),
    "new gradients beside the sums": scenario({"microbatches": 2}, tp=2, dp=4),
    "FP32, recompute": scenario(
        {"microbatches": 2, "recipe": "fp32", "recompute": "full", "kernels": "cpu"}, tp=2, dp=2
    ),
    "zero1, sequence parallel": scenario({"microbatches": 2}, tp=2, dp=4, zero=1, sequence_parallel=True),
    "tied": scenario(model=TIED, tp=2, dp=2),
    "tied, Qwen, late, sequence parallel": scenario(LATE, QWEN, tp=2, dp=2, sequence_parallel=True),
    "tied, Qwen, zero1, masters": scenario(
        {"microbatches": 2, "recipe": "bf16-fp32master"}, QWEN, tp=2, dp=2, zero=1
    ),
    "fsdp2, own rows beside the whole table": scenario({"sequence": 16}, tp=2, dp=2, zero=3),
    "fsdp2, late, gathers above all else": scenario({**LATE, "sequence": 16}, tp=2, dp=2, zero=3),
    "tied, fsdp2": scenario({"microbatches": 2}, TIED, tp=2, dp=2, zero=3),
}


@pytest.mark.parametrize("name", CASES)
def test_rows_and_peak_are_those_of_the_trace(name):
    record, program = record_scenario(CASES[name], 0), pb.program(CASES[name], 0)
    traced = walk(record)
    assert program.memory().peak_bytes == pytest.approx(traced.peak_bytes, rel=2e-3)
    payloads = dict(zip(record.ids, (row.payload_bytes for row in record.rows), strict=True))
    found = compare(program, payloads)
    assert found.match_rate == 1
    assert found.payload_mismatches == ()


def test_a_stage_under_sequence_parallelism_hands_over_its_share_and_gathers_gradients_for_two_products():
    """A middle stage peaks in its layer's backward, where a gradient is gathered for input and weight."""
    case = scenario({**STAGED, "sequence": 256, "kernels": "cpu"}, tp=2, pp=4, sequence_parallel=True)
    traced, program = pb.trace(case, rank=2), pb.program(case, 2)
    assert program.memory().peak_bytes == pytest.approx(traced.peak_bytes, rel=5e-3)  # token ids: 0.4 %
    payloads = dict(zip(traced.ids, traced.payload_bytes, strict=True))
    found = compare(program, payloads)
    assert (found.match_rate, found.payload_mismatches) == (1, ())
    assert {size for name, size in payloads.items() if "send" in name} == {2 * 256 // 2 * 256}


def test_a_second_world_in_one_process_has_meshes_of_its_own():
    """DTensor remembers how products are split by meshes that look alike; those of the first are gone."""
    case = scenario(STAGED, {"layers": 2}, tp=2, pp=2)
    names = [str(record_scenario(case, rank).ids[0]) for rank in (0, 3)]
    assert [name.split("/")[:2] for name in names] == [["m0", "F"]] * 2


def test_a_stage_holds_new_gradients_beside_the_sums_too():
    case = scenario(STAGED, tp=2, dp=2, pp=2)
    traced, memory = pb.trace(case, rank=4), pb.program(case, 4).memory()
    assert memory.peak_bytes == pytest.approx(traced.peak_bytes, rel=5e-3)


def test_the_buckets_of_each_stage_are_numbered_from_the_first():
    case = scenario({**STAGED, "sequence": 16}, pp=2, dp=2, chunks=2, schedule="interleaved-1f1b")
    names = [f"m3/B/bucket{number}/all_reduce@dp#{stage}" for stage in (0, 1) for number in (0, 1)]
    assert [text for text in record_scenario(case, 2).ids if "bucket" in text] == names
    assert [text for text in pb.program(case, 2).ids() if "bucket" in text] == names


def test_buckets_go_when_backward_is_over_the_last_made_first():
    ids = pb.program(scenario(tp=2, dp=2)).ids()
    back = [parse(text) for text in ids if "/B/" in text]
    owners = [part.owner for part in back]
    assert owners[-1].startswith("bucket")
    first = owners.index("bucket0")
    assert all(owner.startswith("bucket") for owner in owners[first:])
    # Nine norms of 256 come first, then the head: 2 bytes x (9 x 256 + 2048 x 256) pass the first 2**20.
    payloads = pb.traffic(scenario(tp=2, dp=2)).table.set_index("op")["payload_bytes"]
    assert payloads["m0/B/bucket0/all_reduce@dp#0"] == 2 * (9 * 256 + 2048 * 256)
