import pytest

from playbook.planner.timing import critical_path, peaks, time_orders
from playbook.program.schedule import schedule

COSTS = {"forward": [1, 2, 1.5, 0.5], "backward_input": [0.5, 1, 2, 1], "backward_weight": [1, 0.5, 1, 2]}


@pytest.mark.parametrize(
    ("name", "stages", "chunks", "word"),
    [
        ("gpipe", 4, 1, "loop"),
        ("1f1b", 4, 1, "loop"),
        ("zb-h1", 4, 1, "loop"),
        ("interleaved-1f1b", 2, 2, "loop"),
        ("zbv", 2, 2, "V"),
    ],
)
def test_times_are_those_of_the_event_engine(place, name, stages, chunks, word):
    made = schedule(name, stages, 5, chunks)
    every = place(stages=stages, microbatches=5, chunks=chunks, comm=[0.25, 0.5, 0.75], **COSTS)
    placed = next(one for one in every if one.word == word)
    orders = placed.tasks(made.packed, split=False)
    timed = made.simulate(comm=[0.25, 0.5, 0.75], **COSTS)
    ours = time_orders(placed, orders)
    assert ours is not None
    assert ours.makespan == pytest.approx(timed.makespan)
    assert tuple(peaks(placed, orders)) == timed.peak_live


def test_orders_that_wait_for_each_other_have_no_time(place):
    loop, *_ = place()
    good = schedule("gpipe", 2, 2)
    orders = loop.tasks(good.packed, split=False)
    orders[0] = [orders[0][0], orders[0][2], orders[0][1], orders[0][3]]
    orders[1] = [orders[1][0], orders[1][1], orders[1][3], orders[1][2]]
    assert time_orders(loop, orders) is None


def test_a_longest_path_leads_from_the_end_to_the_start_without_a_gap(place):
    loop, *_ = place(microbatches=3, forward=[1, 3], comm=0.5)
    orders = loop.tasks(schedule("1f1b", 2, 3).packed, split=True)
    timed = time_orders(loop, orders)
    path = critical_path(loop, orders, timed)
    tasks = [orders[rank][place_] for rank, place_ in path]
    hops = sum(1 for (a, _), (b, _) in zip(path, path[1:], strict=False) if a != b)
    assert sum(loop.duration[task] for task in tasks) + 0.5 * hops == pytest.approx(timed.makespan)
