import pytest

import playbook as pb
from playbook.units import GIB

CHECKPOINTED = pb.Scenario(
    pb.model("llama-3.1-8b"),
    pb.Workload(sequence=81_920, recompute="full", recipe="fsdp2-mixed"),
    pb.Layout(dp=8, zero=3),
    framework="torch",
)


def test_the_logits_of_flash_attention_issue_922():
    # Dao-AILab/flash-attention issue 922: Llama 3 8B, 81 920 tokens, 19.57 GiB could not be allocated.
    found = pb.explain_allocation(19.57 * GIB, CHECKPOINTED)
    assert found.nearest.name == "logits"
    assert found.nearest.formula == "2·b·s·V"
    assert found.nearest.bytes == 81_920 * 128_256 * 2
    assert "is the size of logits (2·b·s·V, F lm_head)" in found.sentence


def test_the_inputs_that_checkpointing_keeps_there():
    found = pb.explain_allocation(20 * GIB, CHECKPOINTED)
    assert found.nearest.name == "32 x input"
    assert found.nearest.bytes == 32 * 81_920 * 4096 * 2


def test_a_longer_sequence_explains_49_gib():
    # modelscope/ms-swift issue 6966: Qwen3-30B-A3B, 32 768 tokens assumed, 49 GiB could not be allocated.
    s = pb.Scenario(pb.model("qwen3-30b-a3b"), pb.Workload(sequence=32_768, recompute="full"))
    found = pb.explain_allocation(49 * GIB, s)
    assert found.nearest.term == "logits"
    assert found.nearest.bytes / GIB == pytest.approx(18.55, abs=0.01)
    assert found.sequence == pytest.approx(86_571, rel=0.01)
    assert found.micro_batch == pytest.approx(86_571 / 32_768, rel=0.01)
    assert "sequence=86\u2009571 instead of 32\u2009768" in found.sentence
    assert "packing" in found.sentence
    assert "micro_batch=3 is the first that asks for as much: 2.64 sequences' worth" in found.sentence


def test_a_whole_number_of_sequences_is_named_alone():
    s = pb.Scenario(pb.model("qwen3-30b-a3b"), pb.Workload(sequence=32_768, recompute="full"))
    assert ", or micro_batch=5: more tokens" in pb.explain_allocation(5 * 4 * 32_768 * 151_936, s).sentence


def test_each_moment_is_a_tensor_of_its_own_and_logits_are_likelier_than_state():
    # Adam keeps exp_avg and exp_avg_sq apart: 128256 x 4096 x 4 bytes each, 1.957 GiB; so have the logits.
    s = pb.Scenario(pb.model("llama-3.1-8b"))
    found = pb.explain_allocation("1.96GiB", s)
    assert found.nearest.name == "logits"
    assert "\u22120.2" in found.sentence
    assert found.rows[0]["difference"] == pytest.approx(-0.0016, abs=1e-4)
    names = [one.name for one in found.matches]
    assert {"lm_head.weight moment", "embed_tokens.weight moment"} <= set(names)
    assert len(set(names)) == len(names)
    assert not pb.explain_allocation("3.91GiB", s).matches


def test_a_score_matrix_grows_with_the_square_of_the_sequence():
    s = pb.Scenario(pb.model("llama-3.1-8b"), pb.Workload(sequence=8192, attention="math"))
    scores = 32 * 8192 * 8192 * 2
    found = pb.explain_allocation(4 * scores, s)
    rows = {row["tensor"]: row for row in found.rows if row["bytes"] == scores}
    assert rows
    assert {row["sequence"] for row in rows.values()} == {2 * 8192}


def test_a_state_tensor_does_not_grow_with_tokens():
    table = 128_256 * 4096 * 4
    s = pb.Scenario(pb.model("llama-3.1-8b"), pb.Workload(sequence=16, recipe="fp32"))
    found = pb.explain_allocation(table, s)
    assert found.matches
    assert found.sequence is None
    assert found.nearest.instant == "between steps" or "gradient" in found.nearest.name


def test_the_last_stage_of_a_pipeline_is_looked_at():
    s = pb.Scenario(pb.model("llama-3.1-8b"), pb.Workload(sequence=8000), pb.Layout(pp=4))
    found = pb.explain_allocation(8000 * 128_256 * 4, s)
    assert found.nearest.term == "logits"


def test_the_table_is_in_order_of_nearness():
    table = pb.explain_allocation(19.57 * GIB, CHECKPOINTED).table
    assert list(table.columns)[:4] == ["tensor", "term", "instant", "bytes"]
    assert table.iloc[0]["tensor"] == "logits"


def test_no_bytes_are_refused():
    with pytest.raises(ValueError, match=r"bytes=0 must be above 0"):
        pb.explain_allocation(0, CHECKPOINTED)
    with pytest.raises(ValueError, match=r"size='49' has no unit"):
        pb.explain_allocation("49", CHECKPOINTED)


def test_small_sizes_are_told_in_the_unit_that_an_allocators_message_has():
    """100 MB are 95.4 MiB; 16 tokens of 128 256 logits in FP32 are 7.83 MiB; 1 000 bytes are no GiB."""
    s = pb.Scenario(pb.model("llama-3.1-8b"), pb.Workload(sequence=16))
    assert "no tensor of this step has 95.4\u2009MiB" in pb.explain_allocation("100MB", s).sentence
    assert "logits (4·b·s·V, F lm_head): 7.83\u2009MiB" in pb.explain_allocation(16 * 128_256 * 4, s).sentence
    assert "no tensor of this step has 1\u2009000\u2009B" in pb.explain_allocation("1000B", s).sentence
