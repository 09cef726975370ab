from dataclasses import replace

from playbook.frameworks import policy
from playbook.program.beside_state import on_their_way, workspace
from playbook.program.block import Block, Weight
from playbook.program.policy import Context
from playbook.program.state import state
from playbook.spec import recipe

UP = Weight(name="mlp.up_proj.weight", shape=(128, 64), tp_dim=0)
EXPERTS = Weight(name="mlp.experts.up_proj", shape=(8, 32, 64), tp_dim=1)
TABLE = Weight(name="embed_tokens.weight", shape=(1000, 64))
FIRST = Block(name="embedding", weights=(TABLE,))
STATES = {"parameters": False, "gradients": False, "optimizer": False}


def context(name="muon", **fields):
    return Context(policy=policy("textbook"), recipe=recipe(name), **fields)


def test_newton_schulz_works_in_three_copies_of_the_largest_matrix_in_bf16():
    (found,) = workspace(FIRST, context(stage=(TABLE, UP)))
    assert found.bytes == 3 * 2 * 128 * 64
    assert (found.term, found.birth.segment) == ("temporary", "O")


def test_the_matrix_is_gathered_from_tensor_parallel_ranks():
    (found,) = workspace(FIRST, context(stage=(replace(UP, shape=(32, 64)),), tp=4))
    assert found.bytes == 3 * 2 * 128 * 64


def test_experts_are_a_matrix_each():
    (found,) = workspace(FIRST, context(stage=(EXPERTS,)))
    assert found.bytes == 3 * 2 * 32 * 64


def test_other_recipes_and_later_blocks_have_no_workspace():
    assert workspace(FIRST, context("bf16", stage=(UP,))) == ()
    assert workspace(replace(FIRST, name="head"), context(stage=(UP,))) == ()
    assert workspace(FIRST, context(stage=(replace(UP, frozen=True),))) == ()


def test_state_on_the_host_is_not_on_the_device():
    hosted = frozenset(("optimizer", "master_weights"))
    found = state(FIRST, context("bf16-fp32master", hosted=hosted), **STATES)
    assert {tensor.term: tensor.bytes for tensor in found} == {"parameters": 128_000, "gradients": 128_000}


def test_parameters_and_gradients_pass_through_the_device_while_a_block_runs():
    hosted = frozenset(("optimizer", "master_weights", "gradients", "parameters"))
    found = state(FIRST, context("bf16-fp32master", hosted=hosted), **STATES)
    assert [(t.term, t.birth.segment, t.bytes) for t in found] == [
        ("unsharded", "F", 128_000),
        ("unsharded", "B", 128_000),
        ("gradients", "B", 128_000),
    ]
    assert on_their_way({"optimizer": 8, "parameters": 0}) == ()
