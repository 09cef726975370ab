import numpy as np
import pytest

from playbook.program.order import WHEN, Run, Turn, accumulate, flags, runs_in_turn, runs_now, turns


def test_without_a_pipeline_forward_and_backward_alternate():
    assert [(run.segment, run.microbatch) for run in accumulate(2, stage=3)] == [
        ("F", 0),
        ("B", 0),
        ("F", 1),
        ("B", 1),
    ]
    assert {run.stage for run in accumulate(2, stage=3)} == {3}


def test_the_first_and_last_run_of_each_segment_and_stage_are_told():
    order = [Run("F", 0, 0), Run("F", 1, 0), Run("F", 0, 1), Run("B", 0, 0), Run("B", 0, 1)]
    assert flags(order) == [(True, False), (True, True), (False, True), (True, False), (False, True)]


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        (True, True, {"every", "first", "last"}),
        (True, False, {"every", "first"}),
        (False, True, {"every", "later", "last"}),
        (False, False, {"every", "later"}),
    ],
)
def test_rows_run_in_the_micro_batches_they_are_for(first, last, expected):
    for sharded, more in ((False, set()), (True, {"sharded"})):
        keep = runs_now(np.arange(len(WHEN)), first, last, sharded)
        assert {name for name, runs in zip(WHEN, keep, strict=True) if runs} == expected | more


def test_a_run_behind_a_backward_of_its_stage_finds_its_parameters_gathered():
    text = "F0 F1 B0 F2 B1 B2"  # stage 0; stage 1 runs one forward in between
    order = [Run(word[0], 0, int(word[1])) for word in text.split()]
    order.insert(3, Run("F", 1, 0))
    found = [turn.sharded for turn in turns(order, alternate=True)]
    assert found == [True, True, True, True, False, True, False]


def test_gathered_parameters_are_told_only_where_asked():
    assert all(turn.sharded for turn in turns([Run("F", 0, 0), Run("B", 0, 0), Run("F", 0, 1)]))


def test_w_and_b_count_together_and_so_do_i_and_b():
    order = [Run("I", 0, 0), Run("B", 0, 1), Run("W", 0, 0)]
    through, whole, late = turns(order)
    assert (through.first_input, through.last_input) == (True, False)
    assert whole == Turn(first=True, last=False, first_input=False, last_input=True)
    assert (late.first, late.last) == (False, True)


def test_rows_for_weights_follow_one_turn_and_all_others_the_other():
    when = np.array([WHEN.index("first")] * 2)
    turn = Turn(first=True, last=True, first_input=False, last_input=True)
    assert runs_in_turn(when, np.array([True, False]), turn).tolist() == [True, False]
