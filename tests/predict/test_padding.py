import pytest

import playbook as pb
from playbook.predict.padding import padded_experts


def words(framework="transformers", **layout):
    recipe = "fsdp2-mixed" if framework == "transformers" else "bf16-fp32master"
    return padded_experts(
        pb.Scenario(
            pb.model("mixtral-8x7b"),
            pb.Workload(recipe=recipe),
            pb.Layout(zero=3, **layout),
            framework=framework,
        )
    )


def test_eight_experts_on_64_ranks_are_shards_of_one_eighth():
    found = words(dp=64)
    assert "8 rows (dim 0), which 64 ranks do not divide: a shard is 1 of 8, not 1/64" in found
    assert "a gathered buffer has 64 rows" in found


@pytest.mark.parametrize("layout", [{"dp": 8}, {"dp": 4}, {"dp": 64, "dp_replicate": 8}])
def test_ranks_that_divide_the_rows_need_no_words(layout):
    assert words(**layout) == ""


def test_an_accounting_that_cuts_elements_pads_none():
    assert words("textbook", dp=64) == ""


def test_the_prediction_says_so():
    s = pb.Scenario(
        pb.model("mixtral-8x7b"),
        pb.Workload(recipe="fsdp2-mixed"),
        pb.Layout(dp=64, zero=3),
        framework="transformers",
    )
    assert "Note: expert tensors have 8 rows" in repr(pb.training_memory(s))
