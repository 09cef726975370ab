import pytest

from playbook.program.schedule import schedule


def test_the_order_of_a_small_pipeline_is_the_one_in_the_paper():
    assert schedule("1f1b", 3, 4).to_csv().splitlines() == [
        "0F0,0F1,0F2,0B0,0F3,0B1,0B2,0B3",
        "1F0,1F1,1B0,1F2,1B1,1F3,1B2,1B3",
        "2F0,2B0,2F1,2B1,2F2,2B2,2F3,2B3",
    ]


def test_warm_up_is_p_minus_1_minus_r_forwards():
    assert schedule("1f1b", 4, 8).warmup == (3, 2, 1, 0)


def test_four_stages_and_eight_micro_batches_end_at_33():
    timed = schedule("1f1b", stages=4, microbatches=8).simulate(
        forward=1, backward_input=1, backward_weight=1
    )
    assert timed.makespan == 33
    assert timed.idle == 9
    assert timed.idle_over_makespan == pytest.approx(9 / 33)
    assert timed.idle_over_ideal == pytest.approx(9 / 24)
    assert timed.span_idle == 9
    assert timed.peak_live == (4, 3, 2, 1)


def test_four_stages_and_sixteen_micro_batches_show_both_conventions():
    timed = schedule("1f1b", 4, 16).simulate()
    assert timed.makespan == 57
    assert timed.idle_over_makespan == pytest.approx(0.15789, abs=1e-5)
    assert timed.idle_over_ideal == pytest.approx(0.1875)


def test_eight_stages_and_64_micro_batches_end_at_213():
    timed = schedule("1f1b", 8, 64).simulate()
    assert timed.makespan == 213
    assert timed.idle_over_makespan == pytest.approx(7 / 71)
    assert timed.peak_live == (8, 7, 6, 5, 4, 3, 2, 1)


def test_a_delay_of_a_tenth_per_hop_stretches_33_to_34_6():
    assert schedule("1f1b", 4, 8).simulate(comm=0.1).makespan == pytest.approx(34.6)


@pytest.mark.parametrize(("microbatches", "peaks"), [(1, (1, 1, 1, 1)), (2, (2, 2, 2, 1)), (3, (3, 3, 2, 1))])
def test_fewer_micro_batches_than_stages_have_an_order(microbatches, peaks):
    timed = schedule("1f1b", 4, microbatches).simulate()
    assert timed.idle == 9
    assert timed.peak_live == peaks


def test_torch_refuses_fewer_micro_batches_than_stages():
    with pytest.raises(ValueError, match="microbatches=3 with stages=4.*use microbatches=4"):
        schedule("1f1b", 4, 3, framework="torch")


def test_megatron_takes_any_number_of_micro_batches():
    assert schedule("1f1b", 4, 3, framework="Megatron").microbatches == 3
