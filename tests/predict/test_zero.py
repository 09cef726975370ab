import pytest
from hypothesis import given
from hypothesis import strategies as st

import playbook as pb
from playbook.predict import zero_states
from playbook.spec.recipe import RECIPES


def test_seventy_billion_parameters_on_64_ranks_take_1120_293_155_and_17_gb():
    found = [state.total_bytes for state in zero_states(70_000_000_000, "bf16-fp32master", 64)]
    assert found == [1_120_000_000_000, 293_125_000_000, 155_312_500_000, 17_500_000_000]


def test_the_presets_70b_take_1129_295_157_and_18_gb():
    found = zero_states(pb.model("llama-3.1-70b"), "bf16-fp32master", 64)
    assert [round(state.total_bytes / 1e9, 1) for state in found] == [1128.9, 295.4, 156.5, 17.6]


@given(st.integers(1, 10**6), st.integers(2, 256))
def test_the_papers_formulas(millions, ranks):
    psi = millions * ranks
    found = [state.total_bytes for state in zero_states(psi, "bf16-fp32master", ranks)]
    shared = psi // ranks
    assert found == [16 * psi, 4 * psi + 12 * shared, 2 * psi + 14 * shared, 16 * shared]


def test_each_bar_is_split_into_what_is_copied_and_what_is_shared():
    zero1 = zero_states(1000, "bf16-fp32master", 10)[1]
    assert zero1.copied == {"parameters": 2000, "gradients": 2000}
    assert zero1.shared == {"master_weights": 400, "optimizer": 800}
    assert zero_states(1000, "bf16-fp32master", 10)[3].copied == {}


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_is_whole_at_stage_0_and_shared_at_stage_3(recipe):
    states = zero_states(1200, recipe, 12)
    each = RECIPES[recipe].state_bytes
    assert (states[0].total_bytes, states[3].total_bytes) == (1200 * each, 100 * each)


@pytest.mark.parametrize(("recipe", "zero1", "zero2"), [("fp32", 9.0, 5.5), ("bf16-fp32grad", 7.5, 4.0)])
def test_megatrons_table_of_eight_ranks(recipe, zero1, zero2):
    """FP32: 8 + 8/d = 9 and 4 + 12/d = 5.5; BF16 with FP32 gradients: 6 + 12/d = 7.5 and 2 + 16/d = 4."""
    states = zero_states(800, recipe, 8)
    assert states[1].total_bytes / 800 == zero1
    assert states[2].total_bytes / 800 == zero2


def test_ranks_must_be_at_least_one():
    with pytest.raises(ValueError, match="ranks=0 must be at least 1"):
        zero_states(1000, "fp32", 0)


@pytest.mark.parametrize("recipe", ["muon", "adam8bit", "fp8", "lora", "qlora"])
def test_recipes_that_tell_tensors_apart_have_the_bytes_of_the_program(recipe):
    model = pb.model("llama-3.2-1b")
    for zero, state in enumerate(zero_states(model, recipe, 4)):
        s = pb.Scenario(model, pb.Workload(sequence=8, recipe=recipe), pb.Layout(dp=4, zero=zero))
        assert state.total_bytes == pytest.approx(sum(pb.program(s).memory().state.values()), rel=1e-6)


def test_muon_saves_four_bytes_for_each_weight_in_a_matrix():
    model = pb.model("llama-3.2-1b")
    adam, muon = (zero_states(model, name, 1)[0].total_bytes for name in ("bf16-fp32master", "muon"))
    # 16 layers: q and o of 2048 × 2048, k and v of 512 × 2048, three of 8192 × 2048.
    assert adam - muon == 4 * 16 * 2048 * (2 * 2048 + 2 * 512 + 3 * 8192)
