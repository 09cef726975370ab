"""Actions beside which a message of their rank waits cost more; expected values by hand."""

import numpy as np
import pytest

import playbook as pb
from playbook.program.schedule import schedule_from_orders
from playbook.schedules import Action

# Rank 0 runs F0, F1 of stage 0; rank 1 is busy with a first action of 5, and takes each message when free.
ORDERS = [
    [Action(0, "F", 0), Action(0, "F", 1), Action(0, "B", 0), Action(0, "B", 1)],
    [Action(1, "F", 0), Action(1, "B", 0), Action(1, "F", 1), Action(1, "B", 1)],
]


def test_without_a_difference_nothing_changes():
    order = schedule_from_orders(ORDERS)
    plain = order.simulate(comm=0.25, receive="deferred")
    same = order.simulate(comm=0.25, receive="deferred", beside={"forward": 1.0})
    assert np.array_equal(plain.start, same.start)


def test_an_action_costs_more_for_the_part_in_which_a_message_waits():
    order = schedule_from_orders(ORDERS)
    timed = order.simulate(forward=2, backward=4, receive="deferred", beside={"forward": 3})
    found = dict(
        zip(timed.labels, zip(timed.start.tolist(), timed.duration.tolist(), strict=True), strict=True)
    )
    # 0F0 ends at 2 and its message is taken at once: 0F1 is alone.
    assert found["0F0"] == (0, 2)
    assert found["0F1"] == (2, 2)
    # 1F1 starts when 1B0 is done, at 2 + 2 + 4: the message of 0F1 waits from 4 to 8.
    assert found["1F1"][0] == 8


def test_a_message_that_waits_all_the_time_gives_the_whole_cost():
    orders = [
        [
            Action(0, "F", 0),
            Action(0, "F", 1),
            Action(0, "F", 2),
            Action(0, "B", 0),
            Action(0, "B", 1),
            Action(0, "B", 2),
        ],
        [
            Action(1, "F", 0),
            Action(1, "F", 1),
            Action(1, "F", 2),
            Action(1, "B", 0),
            Action(1, "B", 1),
            Action(1, "B", 2),
        ],
    ]
    timed = schedule_from_orders(orders).simulate(
        forward=[1, 10], backward=1, receive="deferred", beside={"forward": [2, 10]}
    )
    found = dict(zip(timed.labels, timed.duration.tolist(), strict=True))
    # 0F0's message goes at 1, when rank 1 is free: 0F1 is alone. 0F1's waits until 11, all of 0F2 long.
    assert (found["0F0"], found["0F1"], found["0F2"]) == (1, 1, 2)


def test_a_name_that_is_no_cost_is_refused():
    with pytest.raises(ValueError, match="'forwards', which is no cost; costs are forward"):
        pb.schedule("1f1b", 2, 4).simulate(beside={"forwards": 1})


@pytest.mark.parametrize(
    ("name", "chunks"), [("1f1b", 1), ("zbv", 2), ("dualpipe", 1), ("interleaved-1f1b", 2)]
)
def test_no_action_is_shorter_than_alone_or_longer_than_beside_a_message(name, chunks):
    schedule = pb.schedule(name, 4, 8, chunks)
    alone = schedule.simulate(comm=0.1, receive="deferred")
    slow = {"forward": 1.3, "backward": 2.2, "backward_input": 1.1, "backward_weight": 1.2}
    timed = schedule.simulate(comm=0.1, receive="deferred", beside=slow)
    assert (timed.duration >= alone.duration - 1e-12).all()
    assert (timed.duration <= 1.3 * alone.duration + 1e-12).all()
    assert timed.makespan >= alone.makespan
