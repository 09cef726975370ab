"""Answers of readers, as numbers."""

from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from playbook.answers import read_answer


@pytest.mark.parametrize(
    ("answer", "number"),
    [
        (None, None),
        (3, 3.0),
        (Fraction(1, 4), 0.25),
        (Decimal("0.5"), 0.5),
        (np.float32(0.5), 0.5),
        (np.int64(7), 7.0),
        ("-2", -2.0),
        ("1e3", 1000.0),
        ("5.", 5.0),
        (" 3 / 4 ", 0.75),
        ("70 553", 70_553.0),
    ],
)
def test_a_number_is_read(answer: Any, number: float | None) -> None:
    assert read_answer(answer) == number


@pytest.mark.parametrize(
    ("text", "unit", "number"),
    [("2 GiB", "GB", 2.147483648), ("1 tb", "GB", 1000.0), ("3.5 A", "A", 3.5), ("3/4 MB", "MB", 0.75)],
)
def test_a_unit_is_turned_into_that_of_the_exercise(text: str, unit: str, number: float) -> None:
    assert read_answer(text, unit) == pytest.approx(number, rel=1e-12)


@pytest.mark.parametrize("answer", [np.bool_(True), False, np.array([1.0, 2.0]), "1,5", (1,), 1j])
def test_what_is_no_number_is_refused_in_words(answer: Any) -> None:
    with pytest.raises(ValueError, match="is no number; give one such as 17.5 or '3/19'"):
        read_answer(answer)


def test_bytes_are_no_answer_where_none_are_asked_for() -> None:
    with pytest.raises(ValueError, match="answer='3 GB' is in 'GB', but this exercise takes"):
        read_answer("3 GB")
