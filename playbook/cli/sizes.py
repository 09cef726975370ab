"""Sizes with a unit, as a message or a log prints them."""

import re

UNITS = {"": 1, "b": 1} | {
    f"{prefix}{end}": base**power
    for power, prefix in enumerate("kmgt", start=1)
    for end, base in (("b", 1000), ("ib", 1024))
}
SIZE = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*([a-z]*)\s*", re.IGNORECASE)


def read_size(text: str) -> float:
    """Read a size with its unit: 49GiB, 19.57 GB, 1000000."""
    match = SIZE.fullmatch(text)
    unit = match[2].lower() if match else None
    if match is None or unit not in UNITS:
        raise ValueError(f"size={text!r} must be a number and a unit, such as 49GiB, 19.57GB or 1000000")
    return float(match[1]) * UNITS[unit]
