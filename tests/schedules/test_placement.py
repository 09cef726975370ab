from playbook.schedules.placement import loop, placement_words, v_shape


def test_a_loop_goes_round_the_ranks():
    assert loop(4, 2) == (0, 1, 2, 3, 0, 1, 2, 3)


def test_a_v_goes_down_and_up_so_that_rank_0_owns_both_ends():
    assert v_shape(4) == (0, 1, 2, 3, 3, 2, 1, 0)


def test_words_say_where_the_loss_is():
    assert placement_words(loop(2, 2)) == (
        "rank 0 holds stages 0 and 2",
        "rank 1 holds stages 1 and 3 and the loss",
    )
    assert placement_words(v_shape(2, 3))[1] == "rank 1 holds stages 1, 2 and 5 and the loss"


def test_words_name_the_direction_of_a_second_copy():
    assert placement_words((0, 1, 1, 0), chains=2) == (
        "rank 0 holds stage 0 down and stage 1 up and the loss up",
        "rank 1 holds stage 1 down and the loss down and stage 0 up",
    )
