"""What a reader gives as an answer to an exercise: a number, or a text with a fraction or a unit."""

import math
import re
from decimal import Decimal
from fractions import Fraction
from numbers import Real
from typing import Any

from playbook.spec.byte_sizes import UNITS

GIVEN = re.compile(r"(.*?[\d.])([^\d.]*)")
"""A number or a fraction, and what stands behind its last digit."""


def read_answer(answer: Any, unit: str = "", exercise: str = "this exercise") -> float | None:
    """Turn an answer into a number of the exercise's unit; None stays.

    Parameters
    ----------
    answer
        A number, or a text such as "3/19" or "295 GB".
    unit
        Unit of the exercise; a text may name it, or another size in bytes where it is one.
    exercise
        What the words of a refusal call the exercise.

    Raises
    ------
    ValueError
        If it is no finite number, or its unit is another one.

    Examples
    --------
    >>> read_answer("3/4"), read_answer("295.4 GB", "GB"), read_answer("1.5 TB", "GB")
    (0.75, 295.4, 1500.0)
    """
    if answer is None:
        return None
    if not isinstance(answer, str):
        return finite(answer, number_of(answer))
    match = GIVEN.fullmatch("".join(answer.split()))
    value = finite(answer, number_of(match[1] if match else answer))
    named = match[2] if match else ""
    return value * factor(answer, named, unit, exercise) if named else value


def number_of(answer: Any) -> float:
    """The number that a value or a text is; NaN if it is none, and for True and False."""
    try:
        plain = answer.item() if hasattr(answer, "item") else answer
        if isinstance(plain, bool) or not isinstance(plain, str | Real | Decimal):
            return math.nan
        return float(Fraction(plain) if isinstance(plain, str) else plain)
    except (ArithmeticError, RuntimeError, TypeError, ValueError):
        return math.nan


def finite(answer: Any, value: float) -> float:
    """Return the number if it is finite, and refuse what was given in words otherwise."""
    if math.isfinite(value):
        return value
    raise ValueError(f"answer={answer!r} is no number; give one such as 17.5 or '3/19'")


def factor(answer: str, named: str, unit: str, exercise: str) -> float:
    """How many of the exercise's unit one of the unit named is."""
    given, asked = named.lower(), unit.lower()
    if given == asked:
        return 1.0
    if given in UNITS and asked in UNITS:
        return UNITS[given] / UNITS[asked]
    wants = f"an answer in {unit}" if unit else "a number without a unit"
    bare = "".join(answer.split()).removesuffix(named)
    raise ValueError(f"answer={answer!r} is in {named!r}, but {exercise} takes {wants}, such as {bare}")
