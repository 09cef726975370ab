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
