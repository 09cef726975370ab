"""The tour's exercises: a right answer is told right, a wrong one wrong, and nothing is given away before."""

import pytest

import playbook as pb

RIGHT = {"00.1": 17.638, "00.2": 3 / 19, "00.3": 94.4018}
"""By hand: 70.553706496e9 x 16 / 64 bytes; (p - 1) / (m + p - 1), p 4, m 16; 1.5 x 15 733 632 x 4 bytes."""


@pytest.mark.parametrize("number", RIGHT)
def test_the_right_answer_is_right(number: str) -> None:
    assert pb.check(number, RIGHT[number])


@pytest.mark.parametrize("number", RIGHT)
def test_a_wrong_answer_is_wrong_and_gets_a_hint(number: str) -> None:
    told = pb.check(number, RIGHT[number] * 2)
    assert not told
    assert told.hint


@pytest.mark.parametrize("number", RIGHT)
def test_no_answer_shows_the_question_and_not_the_working(number: str) -> None:
    told = pb.check(number, None)
    assert not told
    assert told.working not in repr(told)
