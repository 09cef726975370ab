import pytest

import playbook as pb

PSI = 4 * 30_848 + 16_448


def test_optimizer_state_is_shared_and_the_rest_is_whole(scenario):
    state = pb.program(scenario(dp=2, zero=1)).memory().state
    assert state == {
        "parameters": 2 * PSI,
        "gradients": 2 * PSI,
        "optimizer": 4 * PSI,
        "master_weights": 2 * PSI,
    }
    assert sum(state.values()) == 4 * PSI + 12 * PSI // 2


def test_gradients_are_scattered_and_parameters_gathered_after_the_step(scenario):
    found = pb.traffic(scenario(dp=2, zero=1))
    assert found.by_collective == {"reduce_scatter@dp": 2 * PSI, "all_gather@dp": 2 * PSI}
    assert found.select(collective="all_gather", phase="O").count == 5
    assert found.wire_bytes == pytest.approx(2 * (2 - 1) / 2 * 2 * PSI)


def test_a_shard_that_does_not_divide_is_rounded_up_unit_by_unit(scenario):
    state = pb.program(scenario(dp=7, zero=1)).memory().state
    # ceil(30 848 / 7) = 4407, ceil(16 448 / 7) = 2350, and the ends' two blocks are rounded apart.
    assert state["master_weights"] == 4 * (4 * 4407 + 1171 + 1180)
