from dataclasses import replace

import pytest

from playbook.frameworks import policy
from playbook.program.block import Block, Weight
from playbook.program.policy import Context
from playbook.program.polynomial import symbol
from playbook.program.state import flat_numel, held_numel, scratch, shard_numel, state, unit
from playbook.spec import recipe

WEIGHTS = (Weight(name="a", shape=(10, 3)), Weight(name="b", shape=(4,)))
LAYER = Block(name="layer", layered=True, weights=WEIGHTS)


def context(framework="torch", name="bf16-fp32master", **fields):
    return Context(policy=policy(framework), recipe=recipe(name), **fields)


def test_state_is_the_recipes_bytes_a_parameter():
    whole = state(LAYER, context("textbook"), parameters=False, gradients=False, optimizer=False)
    assert {tensor.term: tensor.bytes for tensor in whole} == {
        "parameters": 68,
        "master_weights": 136,
        "optimizer": 272,
        "gradients": 68,
    }
    assert all(tensor.birth.segment == "S" and tensor.death is None for tensor in whole)


def test_gradients_are_state_only_where_the_policy_keeps_them():
    found = state(LAYER, context(), parameters=False, gradients=False, optimizer=False)
    assert "gradients" not in {tensor.term for tensor in found}


@pytest.mark.parametrize(("framework", "expected"), [("torch", 3 * 3 + 1), ("textbook", 9)])
def test_shards_are_whole_rows_or_equal_parts_of_the_flat_unit(framework, expected):
    ctx = context(framework, dp=4)
    assert shard_numel(WEIGHTS, ctx) == expected
    assert flat_numel(WEIGHTS, ctx) == 4 * expected


def test_one_rank_shares_with_nobody():
    assert held_numel(WEIGHTS, context(), shared=True) == 34


def test_the_optimizer_covers_the_rows_that_a_rank_owns():
    owned = [
        held_numel(WEIGHTS, context(dp=4, dp_rank=rank), shared=True, term="optimizer") for rank in range(4)
    ]
    assert owned == [10, 10, 10, 4]
    assert sum(owned) == 34


def test_fused_kernels_hold_nothing_and_foreach_a_copy():
    assert scratch(LAYER, context(name="fp32"), shared=False) == ()
    (copy,) = scratch(LAYER, context(name="fp32", optimizer_kernel="foreach"), shared=False)
    assert (copy.bytes, copy.term) == (4 * 34, "temporary")


def test_the_for_loop_holds_twice_the_largest_of_the_first_block_once():
    first = replace(LAYER, name="embedding", layered=False)
    ctx = context(name="fp32", optimizer_kernel="for-loop", stage=WEIGHTS)
    (copy,) = scratch(first, ctx, shared=False)
    assert copy.bytes == 4 * 2 * 30
    assert scratch(replace(first, name="head"), ctx, shared=False) == ()


@pytest.mark.parametrize(("kernel", "copies"), [("fused", 1), ("foreach", 2), ("for-loop", 3)])
def test_masters_take_one_gradient_at_a_time_in_fp32_and_what_the_kernel_needs(kernel, copies):
    first = Block(name="receive")  # no weights of its own
    (copy,) = scratch(first, context(optimizer_kernel=kernel, stage=WEIGHTS), shared=False)
    assert copy.bytes == 4 * copies * 30
    # Over 4 ranks the table of 10 rows of 3 has shards of 3 rows, and 1 row on the last.
    for rank, numel in ((0, 9), (3, 3)):
        ctx = context(optimizer_kernel=kernel, stage=WEIGHTS, dp=4, dp_rank=rank)
        (copy,) = scratch(first, ctx, shared=True)
        assert copy.bytes == 4 * copies * numel


def test_only_frameworks_that_say_so_widen_gradients():
    first = replace(LAYER, name="embedding", layered=False)
    assert scratch(first, context("transformers", stage=WEIGHTS), shared=False) == ()


def test_among_symbols_the_token_table_is_the_largest():
    V, h, f = (symbol(name) for name in "Vhf")
    weights = (Weight(name="up", shape=(f, h)), Weight(name="table", shape=(V, h)))
    (copy,) = scratch(Block(name="embedding"), context(stage=weights, symbolic=True), shared=False)
    assert copy.bytes == 4 * V * h


def test_a_layer_is_its_own_unit_and_the_ends_are_one_at_the_first():
    ctx = context(root=WEIGHTS)
    assert unit(LAYER, ctx) == WEIGHTS
    assert unit(Block(name="embedding"), ctx) == WEIGHTS
    assert unit(Block(name="head", weights=WEIGHTS), ctx) == ()
