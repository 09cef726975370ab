from dataclasses import replace

import pytest

from playbook.frameworks import policy
from playbook.program.block import Block, Weight
from playbook.program.policy import Context
from playbook.program.state import flat_numel, held_numel, scratch, shard_numel, state, unit
from playbook.spec import recipe

WEIGHTS = (Weight(name="a", shape=(10, 3)), Weight(name="b", shape=(4,)))
LAYER = Block(name="layer", layered=True, weights=WEIGHTS)


def context(framework="torch", **fields):
    return Context(policy=policy(framework), recipe=recipe("bf16-fp32master"), **fields)


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


def test_fused_kernels_hold_nothing_and_foreach_an_fp32_copy():
    assert scratch(LAYER, context(), shared=False) == ()
    (copy,) = scratch(LAYER, context(optimizer_kernel="foreach"), shared=False)
    assert (copy.bytes, copy.term) == (4 * 34, "temporary")


def test_the_for_loop_holds_twice_the_largest_of_the_first_block_once():
    first = replace(LAYER, name="embedding", layered=False)
    (copy,) = scratch(first, context(optimizer_kernel="for-loop"), shared=False)
    assert copy.bytes == 4 * 2 * 30
    head = replace(first, name="head")
    assert scratch(head, context(optimizer_kernel="for-loop"), shared=False) == ()


def test_a_layer_is_its_own_unit_and_the_ends_are_one_at_the_first():
    ctx = context(root=WEIGHTS)
    assert unit(LAYER, ctx) == WEIGHTS
    assert unit(Block(name="embedding"), ctx) == WEIGHTS
    assert unit(Block(name="head", weights=WEIGHTS), ctx) == ()
