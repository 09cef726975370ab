from hypothesis import given, settings

from playbook.program.schedule import schedule
from playbook.program.simulate import simulate
from playbook.schedules import Action
from tests.program.plain_simulator import random_orders


def test_the_two_bubbles_of_1f1b_and_its_span():
    """p = 4, m = 8, F = 1, B = 2: 33 long, work 24; rank 0's span is the whole step."""
    timed = schedule("1f1b", 4, 8).simulate()
    assert (timed.makespan, timed.ideal, timed.idle, timed.span_idle) == (33, 24, 9, 9)
    assert (timed.idle_over_makespan, timed.idle_over_ideal) == (9 / 33, 9 / 24)


def test_a_pair_holds_both_micro_batches_while_it_runs():
    order = [Action(0, "F", 0), Action(0, "F", 1), Action(0, "B", 0, True), Action(0, "B", 1)]
    timed = simulate([order], [0], overlap=2)
    assert timed.peak_live == (2,)
    times, counts = timed.live_curve(0)
    assert times.tolist() == [0, 1, 3, 5]
    assert counts.tolist() == [1, 2, 1, 0]


def test_what_was_waited_for_is_made_once_and_kept():
    timed = schedule("1f1b", 2, 4).simulate(comm=1)
    assert timed.cause is timed.cause
    assert timed.labels[:3] == ["0F0", "0F1", "0B0"]


def test_it_is_told_in_one_line():
    """zbv at p = 4, m = 16: 2 · 3 · 16 of work, 3 of idle time, 2 p chunks alive."""
    thin = "\N{THIN SPACE}"
    assert repr(schedule("zbv", 4, 16).simulate()) == (
        f"Simulation(makespan 99, idle 3.0{thin}% of it (3.1{thin}% of ideal), most alive 8 8 8 8)"
    )


@settings(max_examples=40, deadline=None)
@given(case=random_orders())
def test_the_memory_of_every_rank_returns_to_zero_and_peaks_as_told(case):
    orders, placement = case
    timed = simulate(orders, placement, overlap=2, comm=1)
    for rank, order in enumerate(orders):
        times, counts = timed.live_curve(rank)
        assert (times[1:] >= times[:-1]).all()
        assert counts[-1] == 0
        assert counts.max() == timed.peak_live[rank] <= sum(action.kind == "F" for action in order)
