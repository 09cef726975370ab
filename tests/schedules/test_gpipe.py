from fractions import Fraction

import pytest

from playbook.program.schedule import schedule


def test_every_rank_runs_all_forwards_then_all_backwards():
    assert schedule("gpipe", 2, 2).to_csv() == "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n"


@pytest.mark.parametrize(("microbatches", "share"), [(4, "3/7"), (16, "3/19"), (32, "3/35")])
def test_four_stages_idle_for_the_fraction_that_the_papers_give(microbatches, share):
    timed = schedule("gpipe", 4, microbatches).simulate()
    assert timed.idle_over_makespan == pytest.approx(float(Fraction(share)))


def test_the_first_picture_is_a_forward_grid_of_four_by_four_over_seven_slots():
    timed = schedule("gpipe", 4, 4).simulate(forward=1, backward=0)
    assert timed.makespan == 7
    assert timed.idle_over_makespan == pytest.approx(3 / 7)


def test_all_micro_batches_are_alive_at_once_on_every_rank():
    assert schedule("gpipe", 4, 8).simulate().peak_live == (8, 8, 8, 8)


def test_eight_stages_and_64_micro_batches_end_at_213():
    timed = schedule("gpipe", 8, 64).simulate()
    assert timed.makespan == 213
    assert timed.idle == 21
    assert timed.idle_over_ideal == pytest.approx(0.109375)


def test_gpipe_holds_m_where_1f1b_holds_at_most_p():
    assert schedule("gpipe", 8, 64).simulate().peak_live == (64,) * 8
    assert max(schedule("1f1b", 8, 64).simulate().peak_live) == 8


def test_several_chunks_a_rank_are_refused():
    with pytest.raises(ValueError, match="chunks=2.*use chunks=1"):
        schedule("gpipe", 4, 8, 2)


def test_megatron_has_no_gpipe_and_the_text_says_what_it_has():
    with pytest.raises(ValueError, match="megatron has no schedule gpipe; it runs 1f1b, interleaved-1f1b"):
        schedule("gpipe", 4, 8, framework="megatron")
