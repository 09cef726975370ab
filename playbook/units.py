"""Bytes, seconds and counts into text: the one place where numbers are rounded for people.

Thin spaces group thousands and stand before units, minus is a true minus sign. GB is 10⁹ bytes, GiB 2³⁰.
"""

import math
from collections.abc import Callable

THIN = "\N{THIN SPACE}"
MINUS = "\N{MINUS SIGN}"
MB = 10**6
GB = 10**9
GIB = 2**30


def thousands(number: float, decimals: int = 0) -> str:
    """Write a number with its thousands apart.

    Examples
    --------
    >>> thousands(32768) == "32\\u2009768"
    True
    """
    return f"{number:,.{decimals}f}".replace(",", THIN).replace("-", MINUS)


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Number and noun, in the plural unless it is one.

    Examples
    --------
    >>> counted(1, "rank"), counted(8, "micro-batch", "micro-batches")
    ('1 rank', '8 micro-batches')
    """
    return f"{thousands(number)} {noun if number == 1 else plural or noun + 's'}"


def _amount(value: float) -> str:
    size = abs(value)
    if size == 0:
        return "0"
    # Rounded first, so that 9.996 reads 10.0 and not 10.00.
    decimals = 0 if round(size) >= 1000 else 1 if round(size, 2) >= 10 else 2
    if decimals == 2 and size < 0.01:
        return significant(value)
    return thousands(value, decimals)


def significant(value: float, digits: int = 3) -> str:
    """Write a number with that many significant digits, never in exponent form.

    Examples
    --------
    >>> significant(0.0123456)
    '0.0123'
    """
    if value == 0:
        return "0"
    order = math.floor(math.log10(abs(float(f"{value:.{digits - 1}e}"))))
    return thousands(round(value, digits - 1 - order), max(0, digits - 1 - order))


def number(value: float) -> str:
    """Write a number in full where it is whole or short, else with six significant digits.

    Examples
    --------
    >>> number(33.0), number(28.5), number(1 / 3), number(3135) == "3\\u2009135"
    ('33', '28.5', '0.333333', True)
    """
    if value == 0:
        return "0"
    order = math.floor(math.log10(abs(value)))
    text = thousands(value, max(0, 5 - order))
    return text.rstrip("0").rstrip(".") if "." in text else text


def gb(size_bytes: float) -> str:
    """Write bytes in GB (10⁹): two decimals, one from 10 GB on, none from 1 000 GB on."""
    return f"{_amount(size_bytes / GB)}{THIN}GB"


def mb(size_bytes: float) -> str:
    """Write bytes in MB (10⁶), with the decimals of `gb`."""
    return f"{_amount(size_bytes / MB)}{THIN}MB"


def gib(size_bytes: float) -> str:
    """Write bytes in GiB (2³⁰), with the decimals of `gb`."""
    return f"{_amount(size_bytes / GIB)}{THIN}GiB"


def binary_size(size_bytes: float) -> str:
    """Write bytes in the binary unit that fits, as an allocator's message does: B, KiB, MiB, GiB or TiB.

    Examples
    --------
    >>> binary_size(64 * 2**20) == "64.0\\u2009MiB", binary_size(1000) == "1\\u2009000\\u2009B"
    (True, True)
    """
    for unit, power in (("TiB", 4), ("GiB", 3), ("MiB", 2), ("KiB", 1)):
        if abs(size_bytes) >= 1024**power:
            return f"{_amount(size_bytes / 1024**power)}{THIN}{unit}"
    return f"{number(size_bytes)}{THIN}B"


def size(size_bytes: float) -> str:
    """Write bytes in the decimal unit that fits: B, kB, MB, GB or TB.

    Examples
    --------
    >>> size(327_680) == "328\\u2009kB"
    True
    """
    for unit, factor in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if abs(size_bytes) >= factor:
            return f"{significant(size_bytes / factor)}{THIN}{unit}"
    return f"{significant(size_bytes)}{THIN}B"


def seconds(duration_s: float, write: Callable[[float], str] = significant) -> str:
    """Write a time in s, ms or µs: with three significant digits, or as `write` writes numbers.

    Examples
    --------
    >>> seconds(0.00221) == "2.21\\u2009ms"
    True
    """
    for unit, factor in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if abs(duration_s) >= factor:
            return f"{write(duration_s / factor)}{THIN}{unit}"
    return f"{write(duration_s / 1e-6)}{THIN}µs" if duration_s else f"0{THIN}s"


def percent(fraction: float, signed: bool = False) -> str:
    """Write a fraction in per cent with one decimal; `signed` writes the plus of a difference.

    Examples
    --------
    >>> percent(-0.0731, signed=True) == "\\u22127.3\\u2009%"
    True
    """
    text = thousands(100 * fraction, 1)
    if text == f"{MINUS}0.0":
        text = "0.0"
    plus = "+" if signed and fraction > 0 and text != "0.0" else ""
    return f"{plus}{text}{THIN}%"
