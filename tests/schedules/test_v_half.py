import pytest

from playbook.program.schedule import schedule


def test_the_order_of_a_small_pipeline():
    assert schedule("v-half", 2, 3).to_csv().splitlines() == [
        "0F0,3F0,0F1,3I0,3W0,3F1,0F2,0I0,3I1,0W0,3W1,3F2,0I1,3I2,0W1,3W2,0I2,0W2",
        "1F0,2F0,1F1,2F1,2I0,1I0,2W0,1F2,1W0,2F2,2I1,1I1,2W1,1W1,2I2,1I2,2W2,1W2",
    ]


@pytest.mark.parametrize("stages", range(2, 13))
@pytest.mark.parametrize("rounds", [2, 5])
def test_the_peak_is_the_papers_p_plus_2_halved_micro_batches(stages, rounds):
    timed = schedule("v-half", stages, rounds * stages).simulate()
    assert set(timed.peak_live) == {2 * ((stages + 2) // 2)}


@pytest.mark.parametrize(("stages", "idle"), [(2, 3), (4, 9), (6, 15), (8, 21), (16, 45)])
def test_an_even_p_idles_exactly_half_of_1f1b_counted_in_chunks(stages, idle):
    made = schedule("v-half", stages, 4 * stages)
    assert made.simulate().idle == idle
    assert schedule("1f1b", stages, 4 * stages).simulate(forward=2, backward=4).idle == 2 * idle


@pytest.mark.parametrize(("stages", "idle"), [(3, 5), (5, 11), (7, 17)])
def test_an_odd_p_idles_one_chunk_less(stages, idle):
    assert schedule("v-half", stages, 4 * stages).simulate().idle == idle


def test_few_micro_batches_have_an_order_and_a_note():
    made = schedule("v-half", 8, 4)
    assert made.simulate().idle == 23
    assert "not more than half of stages=8" in (made.note or "")


def test_no_framework_runs_it():
    with pytest.raises(ValueError, match="torch has no schedule v-half; it runs .*zbv"):
        schedule("v-half", 4, 8, framework="torch")
