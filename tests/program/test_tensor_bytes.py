import pytest

from playbook.frameworks import policy
from playbook.program.block import Block, Weight
from playbook.program.policy import Context
from playbook.program.polynomial import symbol
from playbook.program.state import state
from playbook.program.tensor_bytes import alike, kind, trainable, weight_bytes
from playbook.spec import recipe

TABLE = Weight(name="embed_tokens.weight", shape=(100, 64))
MATRIX = Weight(name="self_attn.q_proj.weight", shape=(64, 64))
SMALL = Weight(name="self_attn.k_proj.weight", shape=(64, 63))
NORM = Weight(name="norm.weight", shape=(64,))
FROZEN = Weight(name="mlp.up_proj.weight", shape=(128, 64), frozen=True)


def context(name, **fields):
    return Context(policy=policy("textbook"), recipe=recipe(name), **fields)


def held(weight, name, term, **fields):
    return weight_bytes(weight, weight.numel, term, context(name, **fields))


@pytest.mark.parametrize(
    ("weight", "moments"),
    [
        (MATRIX, 2 * (4096 + 4 * 16)),  # 4096 values in 16 blocks of 256
        (SMALL, 8 * 4032),  # below 4096 values
        (TABLE, 8 * 6400),  # tables stay in 32 bits
        (NORM, 8 * 64),
    ],
)
def test_8_bit_adam_packs_all_but_tables_and_small_tensors(weight, moments):
    assert held(weight, "adam8bit", "optimizer") == moments
    assert held(weight, "adam8bit", "master_weights") == 4 * weight.numel


def test_tables_are_packed_too_where_the_recipe_says_so():
    assert held(TABLE, "adam8bit-tables", "optimizer") == 2 * (6400 + 4 * 25)


def test_the_block_decides_how_many_scales_there_are():
    assert held(MATRIX, "adam8bit-2048", "optimizer") == 2 * (4096 + 4 * 2)


def test_muon_has_one_momentum_for_projections_and_adams_two_for_the_rest():
    assert held(MATRIX, "muon", "optimizer") == 4 * 4096
    assert held(TABLE, "muon", "optimizer") == 8 * 6400
    assert held(NORM, "muon", "optimizer") == 8 * 64


def test_fp8_keeps_a_weight_and_its_transpose_beside_the_bf16_one():
    assert held(MATRIX, "fp8", "parameters") == (2 + 2) * 4096
    assert held(TABLE, "fp8", "parameters") == 2 * 6400


@pytest.mark.parametrize(
    ("name", "size"), [("lora", 2 * 8192), ("qlora", 4096 + 128 + 4), ("fsdp2-mixed", 4 * 8192)]
)
def test_what_is_frozen_has_parameters_only(name, size):
    assert held(FROZEN, name, "parameters") == size
    assert [held(FROZEN, name, term) for term in ("gradients", "master_weights", "optimizer")] == [0, 0, 0]


def test_frozen_tables_are_not_quantised():
    table = Weight(name="lm_head.weight", shape=(100, 64), frozen=True)
    assert held(table, "qlora", "parameters") == 2 * 6400
    assert held(table, "qlora", "parameters", frozen_table_bytes=4) == 4 * 6400


def test_symbols_take_the_average_of_a_block():
    h = symbol("h")
    weight = Weight(name="self_attn.q_proj.weight", shape=(h, h))
    found = weight_bytes(weight, weight.numel, "optimizer", context("adam8bit"))
    assert found == (2 * h * h) + (h * h).divided(32)


def test_plain_recipes_count_a_unit_as_one():
    assert alike((MATRIX, NORM), context("bf16"))
    assert not alike((MATRIX, NORM), context("muon"))
    assert not alike((MATRIX, FROZEN), context("bf16"))
    assert trainable((MATRIX, FROZEN)) == (MATRIX,)
    assert kind(NORM) == "vector"


@pytest.mark.parametrize(("zero", "parts"), [(False, 1), (True, 4)])
def test_a_block_of_several_classes_is_their_sum(zero, parts):
    block = Block(name="layer", layered=True, weights=(MATRIX, TABLE, NORM))
    found = state(block, context("muon", dp=4), parameters=zero, gradients=zero, optimizer=zero)
    sizes = {tensor.term: tensor.bytes for tensor in found}
    assert sizes["optimizer"] == (4 * 4096 + 8 * 6400 + 8 * 64) // parts
    assert sizes["parameters"] == 2 * (4096 + 6400 + 64) // parts
