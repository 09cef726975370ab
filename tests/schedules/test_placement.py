from playbook.schedules.placement import loop, v_shape


def test_a_loop_goes_round_the_ranks():
    assert loop(4, 2) == (0, 1, 2, 3, 0, 1, 2, 3)


def test_a_v_goes_down_and_up_so_that_rank_0_owns_both_ends():
    assert v_shape(4) == (0, 1, 2, 3, 3, 2, 1, 0)
