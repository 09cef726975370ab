import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from playbook.program.schedule import schedule
from playbook.schedules import find_plan, plans
from playbook.schedules.orders import check_orders
from playbook.schedules.plan import ChunkCosts

SIZES = {"stages": st.integers(1, 7), "microbatches": st.integers(1, 17), "chunks": st.integers(1, 4)}


def test_the_folder_holds_the_schedules_that_are_built():
    assert {"gpipe", "1f1b", "interleaved-1f1b"} <= set(plans())


def test_every_schedule_says_where_it_is_from_in_one_line():
    for plan in plans().values():
        assert plan.source
        assert plan.summary
        assert "\n" not in plan.summary


def test_a_name_is_found_in_any_case():
    assert find_plan("GPipe").name == "gpipe"
    assert find_plan("interleaved_1F1B").name == "interleaved-1f1b"


def test_an_unknown_name_lists_the_valid_ones():
    with pytest.raises(ValueError, match="'2f2b'.*1f1b, gpipe, interleaved-1f1b"):
        find_plan("2f2b")


@pytest.mark.parametrize("name", plans())
@settings(max_examples=40, deadline=None)
@given(**SIZES)
def test_every_schedule_runs_each_micro_batch_once_per_stage_and_direction(
    name, stages, microbatches, chunks
):
    plan = find_plan(name)
    if plan.refuse(stages, microbatches, chunks):
        return
    made = schedule(name, stages, microbatches, chunks)
    check_orders(made.orders, stages * chunks, microbatches, made.chains)
    for rank, order in enumerate(made.orders):
        assert {action.stage for action in order} == {
            stage for stage, owner in enumerate(made.placement) if owner == rank
        }


@pytest.mark.parametrize("name", plans())
@settings(max_examples=40, deadline=None)
@given(forward=st.floats(0.1, 4), backward=st.floats(0.1, 4), **SIZES)
def test_the_closed_form_of_the_idle_time_equals_the_simulation(
    name, stages, microbatches, chunks, forward, backward
):
    plan = find_plan(name)
    if plan.refuse(stages, microbatches, chunks) or plan.note(stages, microbatches, chunks):
        return
    costs = ChunkCosts(forward=forward, backward_input=backward / 2, backward_weight=backward / 2)
    timed = schedule(name, stages, microbatches, chunks).simulate(forward=forward, backward=backward)
    assert timed.idle == pytest.approx(plan.idle(stages, microbatches, chunks, costs), abs=1e-9)


@pytest.mark.parametrize("name", plans())
@settings(max_examples=40, deadline=None)
@given(**SIZES, comm=st.floats(0, 3), data=st.data())
def test_no_schedule_deadlocks_loses_work_or_leaves_a_chunk_alive(
    name, stages, microbatches, chunks, comm, data
):
    plan = find_plan(name)
    if plan.refuse(stages, microbatches, chunks):
        return
    count = stages * chunks
    costs = data.draw(st.lists(st.floats(0.1, 5), min_size=count, max_size=count))
    made = schedule(name, stages, microbatches, chunks)
    timed = made.simulate(forward=costs, backward_input=costs, backward_weight=0.5, comm=comm)
    assert sum(timed.work) == pytest.approx(microbatches * (2 * sum(costs) + 0.5 * count))
    assert timed.makespan >= max(timed.work) - 1e-9
    for rank in range(stages):
        times, counts = timed.live_curve(rank)
        assert counts[-1] == 0
        assert counts.max() == timed.peak_live[rank]
        assert (times[1:] >= times[:-1]).all()
