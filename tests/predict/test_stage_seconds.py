"""Seconds of a stage's turns, by hand."""

import pytest

from playbook.predict.orders import pipeline
from playbook.predict.rates import rates_of
from playbook.predict.stage_seconds import after_last, message_bytes, simulate_stages, stage_seconds
from playbook.predict.stages import context, lay_distinct
from tests.shapes import scenario_of


def seconds(s):
    made = pipeline(s)
    stages = lay_distinct(s, context(s), range(len(made.placement)))
    return made, stage_seconds(s, rates_of(s), made, stages)


def test_equal_stages_are_timed_once():
    _, found = seconds(scenario_of(pp=4, global_batch=8))
    assert found[1] is found[2]
    assert found[0] is not found[1]


def test_only_the_kinds_of_backward_that_a_schedule_has_are_timed():
    _, whole = seconds(scenario_of(pp=2, global_batch=4))
    _, parts = seconds(scenario_of(pp=2, schedule="zb-h1", global_batch=4))
    assert (whole[0].split, whole[0].backward_input) == (None, 0)
    assert parts[0].whole is None
    assert parts[0].backward == parts[0].backward_input + parts[0].backward_weight


def test_a_message_is_the_residual_stream():
    assert message_bytes(scenario_of(pp=2)) == 2 * 32 * 64
    assert message_bytes(scenario_of(pp=2, tp=2, sequence_parallel=True)) == 32 * 64


def test_stages_meet_on_the_schedules_clock():
    # One micro-batch through two stages: both forwards, both backwards and two messages, nothing beside.
    s = scenario_of(pp=2, global_batch=1)
    made, found = seconds(s)
    link = rates_of(s).links["pp"].seconds(message_bytes(s))
    expected = sum(stage.forward + stage.backward for stage in found) + 2 * link
    assert simulate_stages(s, rates_of(s), made, found).makespan == pytest.approx(expected)


def test_the_optimizer_of_a_rank_takes_all_its_stages():
    made, found = seconds(scenario_of(pp=2, chunks=2, schedule="interleaved-1f1b", global_batch=4))
    assert after_last(made, found) == pytest.approx(
        max(found[0].after + found[2].after, found[1].after + found[3].after)
    )
