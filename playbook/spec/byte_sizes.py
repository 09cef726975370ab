"""Sizes with a unit, as a message or a log prints them."""

import re

UNITS = {"b": 1} | {
    f"{prefix}{end}": base**power
    for power, prefix in enumerate("kmgt", start=1)
    for end, base in (("b", 1000), ("ib", 1024))
}
SIZE = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*([a-z]*)\s*", re.IGNORECASE)

PLAIN_BYTES = 1_000_000
"""Whole numbers from here on are bytes where no unit is given."""


def read_size(text: str) -> float:
    """Read a size with its unit: 49GiB, 19.57 GB, 640kB; a whole number from a million on is bytes.

    Raises
    ------
    ValueError
        If it is no such text, or a small number without a unit.

    Examples
    --------
    >>> read_size("1.5 KiB"), read_size("1000000")
    (1536.0, 1000000.0)
    """
    match = SIZE.fullmatch(text)
    unit = match[2].lower() if match else ""
    if match is None or (unit and unit not in UNITS):
        raise ValueError(f"size={text!r} must be a number and a unit, such as 49GiB, 19.57GB or 1000000")
    number = float(match[1])
    if not unit and (number < PLAIN_BYTES or not number.is_integer()):
        raise ValueError(f"size={text!r} has no unit; use {match[1]}GiB, {match[1]}GB or {match[1]}B")
    return number * UNITS[unit or "b"]
