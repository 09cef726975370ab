"""Peaks of pipeline ranks, and model state of one rank of several axes."""

from dataclasses import replace

import pytest

import playbook as pb
from playbook.pictures.memory_stages import shown, stages_picture
from playbook.pictures.memory_states import rank_states
from playbook.units import THIN

PSI = 70_553_706_496


def scenario(name="llama-3.1-70b", **layout) -> pb.Scenario:
    work = pb.Workload(recompute="full", global_batch=layout.get("dp", 1) * 16)
    return pb.Scenario(pb.model(name), work, pb.Layout(**layout), framework="textbook")


def test_the_first_rank_is_the_worst_and_said_so():
    s = scenario(pp=8, tp=8, sequence_parallel=True)
    picture = stages_picture(s, pb.training_memory(s).pipeline)
    assert picture["worst"] == 0
    assert picture["title"][1].startswith("rank 0 is the worst: ")
    assert [row["sub"] for row in picture["rows"]] == [
        "10 layers, embedding",
        *["10 layers"] * 6,
        "10 layers, head",
    ]
    assert [row["total"] for row in picture["rows"]] == [m.peak_bytes for m in pb.training_memory(s).pipeline]
    assert all(sum(part[1] for part in row["parts"]) == row["total"] for row in picture["rows"])


def test_a_v_puts_the_embedding_and_the_head_on_one_rank():
    s = scenario(pp=4, schedule="zbv")
    picture = stages_picture(s, pb.training_memory(s).pipeline)
    assert picture["rows"][0]["sub"] == "20 layers, embedding, head"
    assert "; ZB-V, 16 micro-batches; " in picture["title"][1]


def test_without_a_pipeline_there_is_no_picture():
    s = scenario(dp=8)
    assert stages_picture(s, pb.training_memory(s).pipeline) == {}


def test_of_many_ranks_the_ends_and_the_worst_are_shown():
    rows = shown(64, worst=41)
    assert {0, 41, 63} <= set(rows)
    assert len(rows) <= 17


def test_data_parallel_state_is_that_of_the_papers():
    totals = [state.total_bytes for state in rank_states(scenario(dp=64))]
    assert totals == pytest.approx(
        [16 * PSI, (4 + 12 / 64) * PSI, (2 + 14 / 64) * PSI, 16 * PSI / 64], rel=1e-6
    )


def test_tensor_parallel_ranks_hold_their_columns():
    states = rank_states(scenario(dp=64, tp=8))
    # 161 norms of 8 192 weights are copied, all else is divided by 8.
    own = (PSI - 161 * 8192) // 8 + 161 * 8192
    assert states[0].total_bytes == 16 * own
    assert states[0].shared == {}
    assert states[3].total_bytes == pytest.approx(16 * own / 64, rel=1e-6)
    assert states[1].copied == {"parameters": 2 * own, "gradients": 2 * own}


def test_words_have_their_units():
    s = scenario(pp=4)
    assert f"{THIN}GB" in stages_picture(s, pb.training_memory(s).pipeline)["title"][1]


def test_where_experts_are_fewer_than_ranks_stage_3_is_that_of_the_first_of_them():
    """Mixtral 8x7B on 64 ranks: one expert of each layer on the first 8, 1/64 of the rest everywhere."""
    work = pb.Workload(recipe="fsdp2-mixed")
    s = pb.Scenario(pb.model("mixtral-8x7b"), work, pb.Layout(dp=64, zero=3), framework="transformers")
    routed = 32 * 8 * 3 * 4096 * 14_336
    rest = 46_702_792_704 - routed
    states = rank_states(s)
    assert states[3].total_bytes == pytest.approx(16 * (routed / 8 + rest / 64), rel=1e-6)
    assert states[1].total_bytes == pytest.approx((8 + 8 / 64) * 46_702_792_704, rel=1e-6)
    even = replace(s, layout=pb.Layout(dp=8, zero=3))
    assert rank_states(even)[3].total_bytes == pytest.approx(2 * 46_702_792_704, rel=1e-6)
