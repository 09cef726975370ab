"""Checks shared by the value objects: each error gives the value, the rule and what would work."""

import difflib
import operator
from collections.abc import Iterable, Mapping
from typing import Any


def whole(name: str, value: object, least: int = 1) -> int:
    """Return `value` as an int of at least `least`.

    Raises
    ------
    TypeError
        If it is not a whole number (`True` and `2.0` are not).
    ValueError
        If it is too small.
    """
    try:
        number = None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None:
        field = name.rpartition(": ")[2]  # a file's name may stand before the key's
        raise TypeError(f"{name}={value!r} must be a whole number; use {field}={meant(value, least)}")
    if number < least:
        raise ValueError(f"{name}={number} must be at least {least}; use {name}={least} or more")
    return number


def meant(value: object, least: int = 1) -> int:
    """Return the whole number that a text or a float stands for; else the least one that means something.

    Examples
    --------
    >>> meant("2048"), meant(4096.0), meant("many")
    (2048, 4096, 1)
    """
    if isinstance(value, str | float):
        try:
            number = float(value)
        except ValueError:
            number = 0.5
        if number.is_integer() and number >= least:
            return int(number)
    return max(least, 1)


def near(value: str, valid: Iterable[str], closeness: float = 0.6) -> str:
    """Return a question that names the closest of the valid words, ready to be put behind a message; or "".

    Parameters
    ----------
    value, valid
        What was given, and what could have been.
    closeness
        Least similarity by `difflib`, from 0 to 1, that makes a word one that may have been meant.

    Examples
    --------
    >>> near("texbook", ("textbook", "torch"))
    '; did you mean textbook?'
    >>> near("red", ("textbook", "torch"))
    ''
    """
    lowered = {name.lower(): name for name in valid}
    found = difflib.get_close_matches(value.strip().lower(), lowered, n=3, cutoff=closeness)
    *first, last = [lowered[name] for name in found] or [""]
    several = f"{', '.join(first)} or {last}" if first else last
    return f"; did you mean {several}?" if last else ""


def positive(name: str, value: object) -> float:
    """Return `value` as a float above 0."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name}={value!r} must be a number above 0")
    if not 0 < value < float("inf"):
        raise ValueError(f"{name}={value} must be above 0 and finite")
    return float(value)


def not_negative(name: str, value: object) -> float:
    """Return `value` as a float of at least 0."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name}={value!r} must be a number of at least 0")
    if not 0 <= value < float("inf"):
        raise ValueError(f"{name}={value} must be at least 0 and finite; use {name}=0 to leave it out")
    return float(value)


def flag(name: str, value: object) -> bool:
    """Return `value` if it is True or False."""
    if not isinstance(value, bool):
        raise TypeError(f"{name}={value!r} must be True or False")
    return value


def text(name: str, value: object) -> str:
    """Return `value` if it is a non-empty string."""
    if not isinstance(value, str) or not value:
        raise TypeError(f"{name}={value!r} must be a text that is not empty")
    return value


def choice(name: str, value: object, valid: Iterable[str]) -> str:
    """Return the valid name that equals `value` up to case.

    Raises
    ------
    ValueError
        If there is none; the message lists every valid name.
    """
    names = tuple(valid)
    if not isinstance(value, str):
        raise TypeError(f"{name}={value!r} must be a name; valid are {', '.join(names)}")
    for known in names:
        if known.lower() == value.strip().lower():
            return known
    raise ValueError(f"{name}={value!r} is not known; valid are {', '.join(names)}{near(value, names)}")


def divides(part: str, degree: int, what: str, size: int) -> None:
    """Refuse a degree that does not divide a size, and list the degrees that do."""
    if size % degree:
        works = ", ".join(str(d) for d in divisors(size) if d <= 4 * degree)
        raise ValueError(f"{part}={degree} does not divide {what}={size}; {part} in {works} would work")


def divisors(number: int) -> tuple[int, ...]:
    """Return every divisor of a positive number, ascending.

    Examples
    --------
    >>> divisors(12)
    (1, 2, 3, 4, 6, 12)
    """
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return tuple(sorted({*small, *(number // d for d in small)}))


def known_keys(what: str, given: Mapping[str, Any], valid: Iterable[str]) -> None:
    """Refuse keys that are not fields of `what`."""
    names = tuple(valid)
    unknown = [key for key in given if key not in names]
    if unknown:
        meant_one = near(unknown[0], names)
        raise ValueError(f"{what} has no field {unknown[0]!r}; its fields are {', '.join(names)}{meant_one}")


def settle(record: object, **values: object) -> None:
    """Store normalised values in a frozen dataclass, from its `__post_init__`."""
    for name, value in values.items():
        object.__setattr__(record, name, value)
