"""Sizes with a unit, as a message or a log prints them."""

import re

UNITS = {"b": 1} | {
    f"{prefix}{end}": base**power
    for power, prefix in enumerate("kmgt", start=1)
    for end, base in (("b", 1000), ("ib", 1024))
}
SIZE = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*([a-z]*)\s*", re.IGNORECASE)


def read_size(text: str) -> float:
    """Read a size with its unit: 49GiB, 19.57 GB, 640kB, 12345B.

    Raises
    ------
    ValueError
        If it is no such text, or has no unit: 49 may be bytes or GiB.

    Examples
    --------
    >>> read_size("1.5 KiB"), read_size("12345B")
    (1536.0, 12345.0)
    """
    match = SIZE.fullmatch(text)
    unit = match[2].lower() if match else ""
    if match is None or (unit and unit not in UNITS):
        raise ValueError(f"size={text!r} must be a number and a unit, such as 49GiB, 19.57GB or 12345B")
    if not unit:
        raise ValueError(f"size={text!r} has no unit; use {match[1]}GiB, {match[1]}GB or {match[1]}B")
    return float(match[1]) * UNITS[unit]
