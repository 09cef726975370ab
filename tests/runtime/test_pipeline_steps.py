"""How far a step's actions lie from the simulated ones."""

import pytest

from playbook.program.schedule import schedule_from_orders
from playbook.runtime.pipeline_steps import errors_by_kind
from playbook.schedules import Action


def test_actions_are_compared_by_kind():
    timed = schedule_from_orders([[Action(0, "F", 0), Action(0, "B", 0)]]).simulate()
    ran = [("forward", "m0/F/stage0", 5.0, 1.1), ("backward", "m0/B/stage0", 6.1, 1.8)]
    # a forward of 1 took 1.1, a backward of 2 took 1.8
    assert errors_by_kind([ran], timed, 1.0) == pytest.approx({"forward": 0.1, "backward": 0.1})


def test_the_two_of_a_pair_count_as_one_action_from_start_to_end():
    order = [Action(0, "F", 0), Action(0, "F", 1), Action(0, "B", 0, True), Action(0, "B", 1)]
    timed = schedule_from_orders([order]).simulate(overlap=4)
    ran = [
        ("forward", "m0/F/stage0", 0.0, 1.0),
        ("forward", "m1/F/stage0", 1.0, 1.5),
        ("backward", "m0/B/stage0", 2.5, 2.0),
        ("backward", "m1/B/stage0", 4.5, 2.0),
    ]
    # the pair costs 4 and took 3.5
    assert errors_by_kind([ran], timed, 1.0) == pytest.approx(
        {"forward": 0.0, "overlapped": 0.125, "backward": 0.0}
    )


def test_an_actions_time_is_its_median_over_the_steps():
    timed = schedule_from_orders([[Action(0, "F", 0), Action(0, "B", 0)]]).simulate()
    steps = [
        [("forward", "m0/F/stage0", 0.0, took), ("backward", "m0/B/stage0", 5.0, 2.0)] for took in (1.2, 1, 9)
    ]
    assert errors_by_kind(steps, timed, 1.0) == pytest.approx({"forward": 0.2, "backward": 0.0})
