"""Words that several pictures share: sizes of buffers, rows of the comparison table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from playbook.units import THIN, gb, percent, significant, size, thousands

BINARY = ("B", "KiB", "MiB", "GiB", "TiB")
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
EQUAL = 5e-4
"""Relative difference below which two numbers are called equal."""


def amount(size_bytes: float) -> str:
    """Bytes in GB, or in the unit that fits where there is less than a tenth of one.

    Examples
    --------
    >>> amount(34_437_515_776), amount(2_950_000), amount(0)
    ('34.4\\u2009GB', '2.95\\u2009MB', '0\\u2009GB')
    """
    return size(size_bytes) if 0 < size_bytes < 10**8 else gb(size_bytes)


def bare(size_bytes: float) -> str:
    """The same without its unit where that is GB, for places whose heading says GB.

    Examples
    --------
    >>> bare(34_437_515_776), bare(0)
    ('34.4', '0')
    """
    return amount(size_bytes).removesuffix(f"{THIN}GB")


def with_article(name: str) -> str:
    """Name of a thing, such as a GPU, with "a" or "an" as its first letter is said.

    Examples
    --------
    >>> with_article("H100"), with_article("B200")
    ('an H100', 'a B200')
    """
    return f"{'an' if name[:1] in 'AEFHILMNORSX' else 'a'} {name}"


def micro_batches(number: float) -> str:
    """Number of micro-batches, in words that also suit halves.

    Examples
    --------
    >>> micro_batches(1), micro_batches(5.5)
    ('1 micro-batch', '5.5 micro-batches')
    """
    return f"{short(number)} micro-batch{'' if number == 1 else 'es'}"


def in_words(number: int) -> str:
    """Small counts as words, others in digits."""
    return NUMBERS[number] if 0 <= number < len(NUMBERS) else thousands(number)


def buffer_size(size_bytes: float, digits: int = 4) -> str:
    """Bytes in the binary unit that fits, in so many digits at most, as buffers are named.

    Examples
    --------
    >>> buffer_size(1_572_864), buffer_size(262_144), buffer_size(0)
    ('1.5 MiB', '256 KiB', '0 B')
    """
    value, unit = float(size_bytes), 0
    while abs(value) >= 1024 and unit < len(BINARY) - 1:
        value, unit = value / 1024, unit + 1
    return f"{short(value, digits)} {BINARY[unit]}"


def short(value: float, digits: int = 3) -> str:
    """As few digits as the number needs, at most `digits` significant ones.

    Examples
    --------
    >>> short(33.0), short(33.42), short(0.5)
    ('33', '33.4', '0.5')
    """
    if value == round(value) and abs(value) < 10**6:
        return thousands(round(value))
    text = significant(value, digits)
    return text.rstrip("0").rstrip(".") if "." in text else text


def difference(measured: float | None, predicted: float | None) -> str:
    """Measured against predicted: "0 ✓" if equal, else signed per cent; empty if one is missing."""
    if measured is None or predicted is None:
        return ""
    if measured == predicted:
        return "0 ✓"
    return percent(measured / predicted - 1, signed=True) if predicted else ""


def points(measured: float, predicted: float) -> str:
    """Difference of two shares, in percentage points.

    Examples
    --------
    >>> points(0.328, 0.273)
    '+5.5 points'
    """
    return f"{percent(measured - predicted, signed=True).split(THIN)[0]} points"


def row(label: str, note: str = "", **cells: Any) -> dict[str, Any]:
    """One row of the comparison table.

    Cells are `formula`, `traced`, `measured` and `difference`, as text.
    """
    return {
        "label": label,
        **({"note": note} if note else {}),
        **{name: cell for name, cell in cells.items() if cell},
    }


def sources(**named: str) -> Mapping[str, str]:
    """Exact source of each column of the comparison table, shown on hover."""
    return {name: source for name, source in named.items() if source}
