"""The allocator's band against what twins on an H200 reserved, and three steps that were not used for it."""

import json
from pathlib import Path

import pytest

import playbook as pb
from benchmarks.twin_cases import CASES
from playbook.predict.reserved import unused_of

GIB = 2**30
ROWS = json.loads((Path(__file__).parents[2] / "benchmarks" / "results" / "gpu_twin.json").read_text())[
    "rows"
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['case']}-{row['model'].replace(' ', '-')}")
def test_what_a_twin_reserved_lies_in_the_band(row):
    unused = unused_of(CASES[row["case"]].scenario, row["measured_peak_bytes"])
    held = row["measured_reserved_bytes"] - row["measured_peak_bytes"]
    assert unused.low_bytes * 0.99 <= held <= unused.high_bytes


@pytest.mark.parametrize(
    ("name", "ranks", "micro_batch", "sequence", "recompute", "peak_gib", "reserved_gib"),
    # Hugging Face models as rank 0, measured on another H200 before there were twins
    [
        ("llama-3.2-1b", 8, 4, 2048, "none", 27.53, 29.75),
        ("llama-3.1-8b", 8, 1, 4096, "full", 20.64, 28.88),
        ("llama-3.1-70b", 64, 1, 4096, "full", 32.14, 44.27),
    ],
)
def test_steps_that_were_measured_elsewhere_lie_in_it_too(
    name, ranks, micro_batch, sequence, recompute, peak_gib, reserved_gib
):
    work = pb.Workload(micro_batch=micro_batch, sequence=sequence, recompute=recompute, recipe="fsdp2-mixed")
    s = pb.Scenario(pb.model(name), work, pb.Layout(dp=ranks, zero=3), framework="transformers")
    unused = unused_of(s, int(peak_gib * GIB))
    assert unused.low_bytes <= (reserved_gib - peak_gib) * GIB <= unused.high_bytes


def test_it_is_counted_by_hand():
    work = pb.Workload(sequence=4096, recipe="fsdp2-mixed")
    s = pb.Scenario(pb.model("llama-3.1-70b"), work, pb.Layout(dp=64, zero=3), framework="torch")
    unused = unused_of(s, 34 * 10**9)
    # embedding and head 2 x 128 256 x 8 192 and a norm; 4 096 x 128 256 logits
    root = 2 * 128_256 * 8192 + 8192
    assert unused.low_bytes == 4 * root
    assert unused.high_bytes == 8 * root + 8 * 4096 * 128_256


def test_a_layer_of_many_experts_has_blocks_of_its_own_with_the_rows_it_is_padded_by():
    whole = pb.model("mixtral-8x7b")
    work = pb.Workload(sequence=4096, recipe="fsdp2-mixed")
    high = {
        ranks: unused_of(
            pb.Scenario(whole, work, pb.Layout(dp=ranks, zero=3), framework="transformers"), 10**9
        ).high_bytes
        for ranks in (8, 16)
    }
    # embedding and head 2 x 32 000 x 4 096, a norm; 4 096 x 32 000 logits; a layer: attention, router, norms
    root, logits = 2 * 32_000 * 4096 + 4096, 4096 * 32_000
    dense = 2 * 4096 * 4096 + 2 * 1024 * 4096 + 8 * 4096 + 2 * 4096
    experts = 8 * 3 * 4096 * 14_336
    assert high[8] == 8 * root + 8 * logits + 10 * (dense + experts)
    assert high[16] == 8 * root + 8 * logits + 10 * (dense + 2 * experts)  # 8 rows padded to 16


def test_the_papers_count_none_and_replicas_a_share_of_the_peak():
    s = pb.Scenario(pb.model("llama-3.1-8b"), pb.Workload(), pb.Layout(dp=8), framework="textbook")
    assert unused_of(s, 10**9).high_bytes == 0
    s = pb.Scenario(pb.model("llama-3.1-8b"), pb.Workload(), pb.Layout(dp=8), framework="torch")
    assert (unused_of(s, 10**9).low_bytes, unused_of(s, 10**9).high_bytes) == (20_000_000, 280_000_000)
