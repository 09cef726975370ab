import pytest

from playbook.spec import Recipe, recipe
from playbook.spec.recipe import RECIPES


@pytest.mark.parametrize(
    ("name", "state", "optimizer", "compute", "reduce"),
    [
        ("fp32", 16, 8, 4, 4),
        ("bf16-fp32master", 16, 12, 2, 2),
        ("bf16-fp32grad", 18, 12, 2, 4),
        ("fsdp2-mixed", 16, 8, 2, 4),
        ("bf16", 8, 4, 2, 2),
        ("fp32-bf16states", 12, 4, 4, 4),
        ("sgd", 8, 0, 4, 4),
    ],
)
def test_bytes_a_parameter(name, state, optimizer, compute, reduce):
    found = recipe(name)
    assert (found.state_bytes, found.optimizer_bytes) == (state, optimizer)
    assert (found.compute_bytes, found.reduce_bytes) == (compute, reduce)


def test_every_recipe_names_its_source_and_its_dtype():
    assert all(found.source and found.compute_dtype in ("bf16", "fp32") for found in RECIPES.values())


def test_names_ignore_case_and_an_unknown_one_lists_all():
    assert recipe("BF16-FP32Master") is recipe("bf16-fp32master")
    with pytest.raises(ValueError, match="recipe='fp7' is not known; valid are fp32, bf16-fp32master"):
        recipe("fp7")


def test_recipes_whose_bytes_differ_by_tensor_say_so():
    uniform = {name for name, found in RECIPES.items() if found.uniform}
    assert set(RECIPES) - uniform == {"adam8bit", "muon", "fp8"}
    assert recipe("muon").matrix_moment_bytes == 4
    assert recipe("fp8").input_bytes == 1
    assert recipe("qlora").frozen_blocks is not None
    assert recipe("lora").adapters


def test_the_block_of_8_bit_adam_is_part_of_its_name():
    assert recipe("adam8bit").moment_blocks.block == 256
    found = recipe("Adam8bit-2048")
    assert (found.name, found.moment_blocks.block, found.moment_blocks.least) == ("adam8bit-2048", 2048, 4096)
    assert recipe("adam8bit-2048-tables").moment_tables
    assert not found.moment_tables
    with pytest.raises(ValueError, match="block of adam8bit=0 must be at least 1"):
        recipe("adam8bit-0")
    with pytest.raises(ValueError, match="recipe='adam8bit-wide' is not known"):
        recipe("adam8bit-wide")


def test_a_recipe_of_your_own_is_checked():
    own = {"gradient_bytes": 2, "master_bytes": 0, "moment_bytes": 0, "compute_bytes": 2, "reduce_bytes": 2}
    assert Recipe(name="own", parameter_bytes=2, **own).state_bytes == 4
    with pytest.raises(ValueError, match="parameter_bytes=0 must be at least 1"):
        Recipe(name="own", parameter_bytes=0, **own)
