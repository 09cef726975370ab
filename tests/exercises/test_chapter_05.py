"""Exercises of chapter 05: worked by hand for the example and for a scenario of the reader's own."""

import pytest

import playbook as pb

EXAMPLE = {"05.1": 57, "05.2": 5.5, "05.3": 3 / 99, "05.4": 1.20999, "05.5": 4}
"""Llama 3.1 8B, p = 4, 32 sequences, m = 16.

19 x 3 micro-batches. 4 + 6 + 1 = 11 chunks of half a share. A rank works 16 x 6 = 96 units, and the last one
starts 3 late. A layer has 218 112 000 weights, the head 128 256 x 4 096 = 2.40856 of them:
10.40856 / (34.40856 / 4). (m + 3)(5 + 32/m): 105 at 2, 91 at 4, 99 at 8.
"""

OWN = {"05.1": 133, "05.2": 11.5, "05.3": 7 / 103, "05.4": 1.13886, "05.5": 8}
"""Llama 2 7B, p = 8, 32 sequences, m = 16.

19 x 7. 8 + 14 + 1 = 23 chunks. 96 units and 7. A layer has 202 383 360 weights, the head 32 000 x 4 096 =
0.647642 of them: 4.647642 / (32.647642 / 8). (m + 7)(5 + 32/m): 143 at 4, 135 at 8, 161 at 16.
"""


@pytest.fixture
def own() -> pb.Scenario:
    workload = pb.Workload(micro_batch=2, global_batch=32)
    return pb.Scenario(pb.model("llama-2-7b"), workload, pb.Layout(pp=8))


@pytest.mark.parametrize("number", EXAMPLE)
def test_the_right_answer_is_right_and_worked(number: str) -> None:
    told = pb.check(number, EXAMPLE[number])
    assert told
    assert told.working in repr(told)


@pytest.mark.parametrize("number", OWN)
def test_the_answer_follows_the_readers_own_scenario(number: str, own: pb.Scenario) -> None:
    assert pb.check(number, OWN[number], own)
    assert str(own.layout.pp) in pb.check(number, scenario=own).question


@pytest.mark.parametrize("number", EXAMPLE)
def test_a_wrong_answer_is_wrong_and_gets_a_hint(number: str) -> None:
    told = pb.check(number, EXAMPLE[number] * 1.07)
    assert not told
    assert told.hint


@pytest.mark.parametrize("number", EXAMPLE)
def test_no_answer_shows_the_question_and_not_the_working(number: str) -> None:
    told = pb.check(number)
    assert not told
    assert told.working not in repr(told)


@pytest.mark.parametrize(
    ("number", "answer", "hint"),
    [
        ("05.1", 16, "rule of thumb"),
        ("05.1", 60, "idle / ideal"),
        ("05.2", 11, "counts chunks"),
        ("05.2", 4, "1F1B"),
        ("05.3", 0, "own span"),
        ("05.3", "3/19", "1F1B's"),
        ("05.3", "3/96", "idle / ideal"),
        ("05.4", 1.3011, "without the head"),
        ("05.4", 2.4086, "add its stage's own"),
        ("05.5", 32, "fixed part"),
        ("05.5", 16, "m = 4p"),
    ],
)
def test_known_mistakes_are_named(number: str, answer: float | str, hint: str) -> None:
    told = pb.check(number, answer)
    assert not told
    assert hint in told.hint


def test_a_pipeline_of_one_stage_needs_one_microbatch() -> None:
    alone = pb.Scenario(pb.model("llama-3.1-8b"), pb.Workload(), pb.Layout())
    assert pb.check("05.1", 1, alone)


def test_where_microbatches_are_no_multiple_of_stages_the_peak_is_counted() -> None:
    # p = 4, m = 3: one group of three, six chunks in all, and all of them are alive on rank 0.
    few = pb.Scenario(pb.model("llama-3.1-8b"), pb.Workload(global_batch=3), pb.Layout(pp=4))
    told = pb.check("05.2", 3, few)
    assert told
    assert "counts 6 chunks" in told.working
