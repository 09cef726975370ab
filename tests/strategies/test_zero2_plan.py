import pytest

import playbook as pb

PSI = 4 * 30_848 + 16_448


def test_gradients_and_optimizer_state_are_shared_and_parameters_whole(scenario):
    state = pb.program(scenario(dp=4, zero=2)).memory().state
    assert state["parameters"] == 2 * PSI
    assert sum(state.values()) == 2 * PSI + 14 * PSI // 4


def test_it_sends_as_much_as_an_all_reduce(scenario):
    shared = pb.traffic(scenario(dp=4, zero=2))
    replicated = pb.traffic(scenario(dp=4))
    assert shared.wire_bytes == replicated.wire_bytes == 2 * 3 / 4 * 2 * PSI


@pytest.mark.parametrize("recipe", ["bf16-fp32master", "bf16-fp32grad"])
@pytest.mark.parametrize("stage", [2, 3])
def test_gradients_reduced_in_the_last_micro_batch_are_whole_until_then(scenario, stage, recipe):
    """As `no_sync` has it: with stage 2 what stage 1 holds; with stage 3 all gradients of the weights."""
    each = 2 if recipe == "bf16-fp32master" else 4
    states = {
        sync: pb.program(scenario(dp=4, zero=stage, recipe=recipe, gradient_sync=sync, global_batch=12))
        .memory()
        .state
        for sync in ("every", "last")
    }
    assert states["every"]["gradients"] == each * PSI // 4
    assert states["last"]["gradients"] == each * PSI
    others = ("parameters", "master_weights", "optimizer")
    assert all(states["last"][term] == states["every"][term] for term in others)


def test_one_micro_batch_is_the_last(scenario):
    state = pb.program(scenario(dp=4, zero=2, gradient_sync="last", global_batch=4)).memory().state
    assert state["gradients"] == 2 * PSI // 4
