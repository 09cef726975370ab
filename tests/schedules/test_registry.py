import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from playbook.program.schedule import schedule
from playbook.schedules import find_plan, plans
from playbook.schedules.orders import check_orders
from playbook.schedules.plan import ChunkCosts

SIZES = {"stages": st.integers(1, 7), "microbatches": st.integers(1, 17), "chunks": st.integers(1, 4)}
COST = st.floats(0.1, 4)
EQUAL_OR_ANY = st.one_of(COST.map(lambda cost: (cost, cost, cost)), st.tuples(COST, COST, COST))
"""Costs of F, I and W: half of the time equal, since some formulas hold only there."""


def make(name, stages, microbatches, chunks):
    """The schedule with that many chunks, or with the number that it takes."""
    fits = find_plan(name).refuse(stages, microbatches, chunks) is None
    return schedule(name, stages, microbatches, chunks if fits else None)


NAMES = [
    "1f1b",
    "dualpipe",
    "dualpipe-v",
    "gpipe",
    "interleaved-1f1b",
    "interleaved-zero-bubble",
    "looped-bfs",
    "v-half",
    "v-min",
    "zb-h1",
    "zb-h2",
    "zbv",
]


def test_the_folder_holds_the_twelve_schedules():
    assert list(plans()) == NAMES


def test_every_schedule_says_where_it_is_from_in_one_line():
    for plan in plans().values():
        assert plan.source
        assert plan.summary
        assert plan.idle_text
        assert plan.peak_text
        assert "\n" not in plan.summary


def test_a_name_is_found_in_any_case():
    assert find_plan("GPipe").name == "gpipe"
    assert find_plan("interleaved_1F1B").name == "interleaved-1f1b"


def test_an_unknown_name_lists_the_valid_ones():
    with pytest.raises(ValueError, match="'2f2b'.*1f1b, dualpipe, dualpipe-v, gpipe, .*zbv, or a path"):
        find_plan("2f2b")


@pytest.mark.parametrize("name", NAMES)
def test_no_size_is_refused_but_for_its_chunks(name):
    for stages in range(1, 6):
        for microbatches in range(1, 12):
            assert schedule(name, stages, microbatches).microbatches == microbatches


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40, deadline=None)
@given(**SIZES)
def test_every_schedule_runs_each_micro_batch_once_per_stage_of_its_chain_and_direction(
    name, stages, microbatches, chunks
):
    made = make(name, stages, microbatches, chunks)
    check_orders(made.orders, len(made.placement), microbatches, made.chains)
    actions = [action for order in made.orders for action in order]
    assert sum(action.kind == "F" for action in actions) == made.depth * microbatches
    assert sum(action.kind in "BI" for action in actions) == made.depth * microbatches
    for rank, order in enumerate(made.orders):
        assert {made.placement[action.stage] for action in order} == {rank}


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=50, deadline=None)
@given(costs=EQUAL_OR_ANY, shorter=st.floats(0, 1), **SIZES)
def test_the_closed_forms_equal_the_simulation_where_no_note_objects(
    name, stages, microbatches, chunks, costs, shorter
):
    plan, made = find_plan(name), make(name, stages, microbatches, chunks)
    forward, backward_input, backward_weight = costs
    overlap = sum(costs) - shorter * min(forward, backward_input + backward_weight)
    timed = made.simulate(
        forward=forward, backward_input=backward_input, backward_weight=backward_weight, overlap=overlap
    )
    priced = ChunkCosts(
        forward=forward, backward_input=backward_input, backward_weight=backward_weight, overlap=overlap
    )
    if plan.note(stages, microbatches, made.chunks) is None and plan.cost_note(priced) is None:
        said = plan.idle(stages, microbatches, made.chunks, priced)
        assert timed.idle == pytest.approx(said, abs=1e-9 * timed.makespan)
    peaks = [plan.peak(rank, stages, microbatches, made.chunks) for rank in range(stages)]
    assert all(peak in (None, live) for peak, live in zip(peaks, timed.peak_live, strict=True))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("stages", "microbatches"), [(2, 8), (4, 8), (4, 16), (8, 64)])
def test_the_formulas_hold_at_usual_sizes(name, stages, microbatches):
    plan, made = find_plan(name), schedule(name, stages, microbatches)
    timed = made.simulate()
    assert plan.note(stages, microbatches, made.chunks) is None
    assert timed.idle == plan.idle(stages, microbatches, made.chunks, ChunkCosts())
    assert [plan.peak(rank, stages, microbatches, made.chunks) for rank in range(stages)] == list(
        timed.peak_live
    )


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40, deadline=None)
@given(**SIZES, comm=st.floats(0, 3), data=st.data())
def test_no_schedule_deadlocks_loses_work_or_leaves_a_chunk_alive(
    name, stages, microbatches, chunks, comm, data
):
    made = make(name, stages, microbatches, chunks)
    count = len(made.placement)
    costs = data.draw(st.lists(st.floats(0.1, 5), min_size=count, max_size=count))
    timed = made.simulate(forward=costs, backward_input=costs, backward_weight=0.5, comm=comm)
    runs = sum(
        costs[action.stage] * 2 + 0.5 for order in made.orders for action in order if action.kind == "F"
    )
    assert sum(timed.work) == pytest.approx(runs)
    assert timed.makespan >= max(timed.work) - 1e-9
    for rank in range(stages):
        times, counts = timed.live_curve(rank)
        assert counts[-1] == 0
        assert counts.max() == timed.peak_live[rank]
        assert (times[1:] >= times[:-1]).all()


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=20, deadline=None)
@given(**SIZES)
def test_every_order_survives_csv(name, stages, microbatches, chunks, tmp_path_factory):
    made = make(name, stages, microbatches, chunks)
    path = tmp_path_factory.mktemp("orders") / "order.csv"
    made.to_csv(path)
    again = schedule(path)
    assert again.orders == made.orders
    if microbatches > 1:  # a single micro-batch shows one direction only
        assert (again.placement, again.chains, again.chunks) == (made.placement, made.chains, made.chunks)
