from random import Random

import pytest

from playbook.planner.local_search import fuse_where_shorter, improve
from playbook.planner.timing import peaks, time_orders
from playbook.program.schedule import schedule


def gpipe(placed, stages, microbatches):
    return placed.tasks(schedule("gpipe", stages, microbatches).packed, split=True)


def test_an_order_becomes_shorter_and_keeps_its_cap(place):
    loop, *_ = place(stages=3, microbatches=4, memory_cap=4)
    start = gpipe(loop, 3, 4)
    makespan, orders = improve(loop, start, 1500, Random(0), goal=0.0)
    # Fill and drain with I and W in turn: rank 2 ends its I at 7, 9, 11, 13, rank 0 its last at 15, W at 16.
    # Every rank has 12 units of work and the last starts after two forwards: 14 is the least.
    assert time_orders(loop, start).makespan == 16
    assert makespan == time_orders(loop, orders).makespan == 14
    assert max(peaks(loop, orders)) <= 4


def test_the_same_seed_finds_the_same_order(place):
    loop, *_ = place(stages=3, microbatches=4, forward=[1, 2, 1.5])
    found = [improve(loop, gpipe(loop, 3, 4), 300, Random(7), goal=0.0) for _ in range(2)]
    assert found[0] == found[1]


def test_it_stops_at_once_when_nothing_can_be_shorter(place):
    loop, *_ = place(stages=2, microbatches=2)
    start = gpipe(loop, 2, 2)
    assert improve(loop, start, 10_000_000, Random(0), goal=100.0)[1] == start


def test_a_start_that_locks_is_refused(place):
    loop, *_ = place()
    first, second = gpipe(loop, 2, 2)
    with pytest.raises(ValueError, match="the order to start from locks"):
        improve(loop, [first[::-1], second], 10, Random(0), goal=0.0)


def test_backwards_are_fused_where_that_is_cheaper_and_costs_no_time(place):
    loop, *_ = place(stages=1, microbatches=2, backward=1.5)
    split = gpipe(loop, 1, 2)
    assert time_orders(loop, split).makespan == 6
    together = fuse_where_shorter(loop, split)
    assert loop.schedule(together).to_csv() == "0F0,0F1,0B0,0B1\n"
    assert time_orders(loop, together).makespan == 5
