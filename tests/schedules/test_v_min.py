import pytest

from playbook.program.schedule import schedule


def test_the_order_of_a_small_pipeline():
    assert schedule("v-min", 2, 3).to_csv().splitlines() == [
        "0F0,3F0,3I0,0F1,3W0,0I0,0W0,3F1,3I1,0F2,3W1,0I1,0W1,3F2,3I2,3W2,0I2,0W2",
        "1F0,2F0,2I0,1I0,1F1,2F1,2W0,1W0,2I1,1I1,1F2,2F2,2W1,1W1,2I2,1I2,2W2,1W2",
    ]


@pytest.mark.parametrize("stages", range(2, 13))
@pytest.mark.parametrize("rounds", [2, 5])
def test_the_peak_is_the_papers_p_plus_4_thirds_micro_batches(stages, rounds):
    timed = schedule("v-min", stages, rounds * stages).simulate()
    assert max(timed.peak_live) == 2 * ((stages + 4) // 3)


@pytest.mark.parametrize("stages", range(2, 17))
def test_the_idle_time_is_two_thirds_of_1f1b_give_or_take_a_chunk(stages):
    timed = schedule("v-min", stages, 2 * stages).simulate()
    assert abs(timed.idle - 2 / 3 * 6 * (stages - 1)) == 1


def test_it_idles_more_and_holds_less_than_v_half():
    small, half = (schedule(name, 8, 32).simulate() for name in ("v-min", "v-half"))
    assert (small.idle, half.idle) == (27, 21)
    assert (max(small.peak_live), max(half.peak_live)) == (8, 10)


def test_a_lone_micro_batch_is_noted_where_the_turn_would_wait():
    made = schedule("v-min", 6, 1)
    assert made.simulate().idle == 19
    assert "microbatches=1" in (made.note or "")
    assert schedule("v-min", 4, 1).note is None
