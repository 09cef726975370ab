import pytest

from playbook.program.schedule import schedule
from playbook.schedules import find_plan
from playbook.schedules.plan import ChunkCosts


def test_the_first_rank_runs_ahead_by_twice_the_ranks_below():
    assert schedule("zb-h2", 2, 4).to_csv().splitlines() == [
        "0F0,0F1,0F2,0I0,0W0,0F3,0I1,0W1,0I2,0W2,0I3,0W3",
        "1F0,1I0,1F1,1I1,1F2,1I2,1W0,1F3,1I3,1W1,1W2,1W3",
    ]


@pytest.mark.parametrize(("stages", "microbatches"), [(4, 7), (4, 8), (4, 16), (8, 15), (8, 64)])
def test_no_rank_waits_inside_its_span_and_the_step_ends_p_minus_1_late(stages, microbatches):
    timed = schedule("zb-h2", stages, microbatches).simulate()
    assert timed.span_idle == 0
    assert timed.makespan == 3 * microbatches + stages - 1
    assert timed.peak_live == (2 * stages - 1,) * stages


@pytest.mark.parametrize(("microbatches", "span"), [(4, 3), (5, 2), (6, 1), (7, 0)])
def test_below_2p_minus_1_each_missing_micro_batch_costs_one_slot_inside_the_span(microbatches, span):
    made = schedule("zb-h2", 4, microbatches)
    assert made.simulate().span_idle == span
    assert (made.note is None) == (span == 0)


def test_with_as_many_micro_batches_as_ranks_it_is_zb_h1():
    assert schedule("zb-h2", 4, 4).orders == schedule("zb-h1", 4, 4).orders


def test_the_span_idles_p_minus_1_times_f_plus_i_minus_2w():
    timed = schedule("zb-h2", 4, 8).simulate(forward=1, backward_input=1.2, backward_weight=0.8)
    assert timed.span_idle == pytest.approx(1.8)
    assert timed.idle == pytest.approx(3)


def test_weights_outside_the_range_of_the_formula_are_noted():
    note = find_plan("zb-h2").cost_note
    assert note(ChunkCosts()) is None
    assert "not between half" in (note(ChunkCosts(backward_weight=2)) or "")
    assert "not between half" in (note(ChunkCosts(backward_input=3)) or "")


@pytest.mark.parametrize("framework", ["torch", "torchtitan", "megatron"])
def test_no_framework_runs_it_and_the_text_says_what_it_runs(framework):
    with pytest.raises(ValueError, match=f"{framework} has no schedule zb-h2; it runs 1f1b"):
        schedule("zb-h2", 4, 8, framework=framework)
