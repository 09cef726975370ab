import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from playbook.planner.list_scheduling import Rule, fused, list_orders, rules
from playbook.planner.placed import placements
from playbook.planner.setting import Setting
from playbook.planner.timing import peaks, time_orders
from playbook.program.schedule import schedule

LAZY = Rule(lead=1.0, fit=0.0, eager_weights=False, deep=True)


def test_with_room_for_all_and_no_weights_it_is_one_forward_one_backward(place):
    loop, *_ = place(stages=3, microbatches=6, backward_weight=0)
    orders = list_orders(loop, Rule(lead=1.0, fit=math.inf, eager_weights=True, deep=True))
    assert (
        time_orders(loop, fused(loop, orders)).makespan
        == schedule("1f1b", 3, 6).simulate(backward_weight=0).makespan
    )


def test_a_gap_is_filled_with_a_backward_for_the_weights(place):
    loop, *_ = place(stages=2, microbatches=2)
    last = loop.schedule(list_orders(loop, LAZY)).to_csv().splitlines()[1]
    assert last == "1F0,1I0,1F1,1I1,1W0,1W1"


@settings(max_examples=40, deadline=None)
@given(
    stages=st.integers(1, 4),
    microbatches=st.integers(1, 6),
    chunks=st.integers(1, 3),
    room=st.integers(0, 3),
    data=st.data(),
)
def test_every_rule_gives_an_order_that_runs_within_the_cap(stages, microbatches, chunks, room, data):
    costs = st.lists(st.floats(0, 3), min_size=stages * chunks, max_size=stages * chunks)
    setting = Setting.of(
        stages=stages,
        microbatches=microbatches,
        chunks=chunks,
        forward=data.draw(costs),
        backward_input=data.draw(costs),
        backward_weight=data.draw(costs),
        backward=None,
        comm=0.5,
        memory_cap=chunks + room,
        split=True,
        copies=1,
    )
    for placed in placements(setting):
        rule = data.draw(st.sampled_from(list(rules(placed))))
        orders = list_orders(placed, rule)
        assert sum(map(len, orders)) == 3 * microbatches * stages * chunks
        for one in (orders, fused(placed, orders)):
            assert time_orders(placed, one) is not None
            assert max(peaks(placed, one)) <= chunks + room


@pytest.mark.parametrize("chunks", [1, 2])
def test_rules_are_different(place, chunks):
    every = list(rules(place(chunks=chunks)[0]))
    assert len(set(every)) == len(every) >= 28
