import pytest

from playbook.program.schedule import schedule
from playbook.schedules import find_plan
from playbook.schedules.plan import ChunkCosts


def test_weights_start_as_many_turns_late_as_there_are_ranks_above():
    assert schedule("zb-h1", 3, 4).to_csv().splitlines() == [
        "0F0,0F1,0F2,0I0,0W0,0F3,0I1,0W1,0I2,0W2,0I3,0W3",
        "1F0,1F1,1I0,1F2,1I1,1W0,1F3,1I2,1W1,1I3,1W2,1W3",
        "2F0,2I0,2F1,2I1,2F2,2I2,2W0,2F3,2I3,2W1,2W2,2W3",
    ]


def test_eight_ranks_idle_a_third_of_the_21_of_1f1b():
    timed = schedule("zb-h1", 8, 64).simulate()
    assert (timed.makespan, timed.idle) == (199, 7)
    assert timed.idle_over_ideal == pytest.approx(7 / 192)


def test_every_rank_holds_what_1f1b_holds_on_its_first():
    assert schedule("zb-h1", 4, 8).simulate().peak_live == (4, 4, 4, 4)


@pytest.mark.parametrize(
    ("forward", "backward_input", "backward_weight", "idle"),
    [(1, 1, 1, 3), (1, 1.2, 0.8, 4.2), (2, 1, 1, 6), (1, 2, 1, 6)],
)
def test_the_idle_time_is_p_minus_1_times_f_plus_i_minus_w(forward, backward_input, backward_weight, idle):
    timed = schedule("zb-h1", 4, 8).simulate(
        forward=forward, backward_input=backward_input, backward_weight=backward_weight
    )
    assert timed.idle == pytest.approx(idle)


def test_a_weight_longer_than_the_gap_breaks_the_formula_and_is_noted():
    plan, costs = find_plan("zb-h1"), ChunkCosts(forward=1, backward_input=1, backward_weight=2)
    assert schedule("zb-h1", 4, 8).simulate(backward_weight=2).idle == 3
    assert plan.idle(4, 8, 1, costs) == 0
    assert "backward-weight=2 is more than 1" in (plan.cost_note(costs) or "")


def test_fewer_micro_batches_than_ranks_have_an_order_and_a_note():
    made = schedule("zb-h1", 4, 3)
    assert made.simulate().idle == 4
    assert "microbatches=3 is less than stages=4" in (made.note or "")


def test_several_chunks_are_refused_with_the_schedule_that_takes_them():
    with pytest.raises(ValueError, match="chunks=2.*use chunks=1, or interleaved-zero-bubble"):
        schedule("zb-h1", 4, 8, 2)


def test_torch_wants_equal_rounds_here_too():
    assert schedule("zb-h1", 4, 8, framework="torch").stages == 4
    with pytest.raises(ValueError, match="torch runs 2 rounds.*use microbatches=8 or 10"):
        schedule("zb-h1", 4, 9, framework="torch")
