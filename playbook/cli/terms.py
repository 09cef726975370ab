"""The terms of a peak as a table, with their formulas, and what the letters in them stand for."""

import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import typer

from playbook.cli.output import write_table
from playbook.units import GB, MB, gb, gib, mb, percent, size, thousands

BEYOND = ("reserved_unused", "context")
"""Terms that the allocator does not hand out, so that they are no part of the peak."""

LETTERS = {
    "Ψ": "parameters of the model",
    "b": "sequences of a micro-batch",
    "s": "tokens of a sequence",
    "L": "layers",
    "V": "vocabulary",
    "h": "hidden features",
    "f": "feed-forward features",
    "a": "query heads",
    "g": "key-value heads",
    "k": "features of a head",
    "E": "experts",
    "K": "experts of a token",
    "e": "features of an expert",
    "w": "features of the shared experts",
    "rq": "latent features of queries",
    "rkv": "latent features of keys and values",
    "dn": "features of a head without position",
    "dr": "features of a head with position",
    "dv": "features of a value",
    "N": "ranks that share dense state",
    "Ne": "ranks that share an expert's state",
    "t": "tensor-parallel ranks",
    "c": "context-parallel ranks",
    "ep": "expert-parallel ranks",
    "etp": "ranks that split an expert",
}
"""Symbols of `playbook.program.polynomial` in words, in the order in which they are told."""

PHASES = {
    "F": "forward",
    "R": "recomputation",
    "B": "backward",
    "I": "backward of inputs",
    "W": "backward of weights",
    "O": "optimizer",
}
FORMULA_WIDTH = 90
GLUE = "\N{NO-BREAK SPACE}"
MIB = 2**20


def both(size_bytes: float) -> str:
    """Write bytes in decimal and in binary units."""
    return f"{gb(size_bytes)} ({gib(size_bytes)})" if size_bytes >= GB else mb(size_bytes)


def when(instant: str) -> str:
    """Write an instant with its phase in words, as in "B layers.78 (backward)"."""
    phase = PHASES.get(instant.partition(" ")[0])
    return f"{instant} ({phase})" if phase else instant


def write_terms(
    terms: Iterable[Mapping[str, Any]], peak_bytes: float, predicted: Mapping[str, int] | None = None
) -> None:
    """Print the terms of a peak, largest first, behind them what lies beyond it, then their letters.

    Parameters
    ----------
    terms
        Rows of term, bytes and formula, if there is one.
    peak_bytes
        What they are a part of.
    predicted
        What the formulas give, by term, where `terms` were found otherwise.
    """
    held = [row for row in terms if row["bytes"] or (predicted or {}).get(row["term"])]
    ordered = sorted(held, key=lambda row: (row["term"] in BEYOND, -row["bytes"]))
    unit = GB if peak_bytes >= GB else MB
    header = ["term", "bytes", "of the peak", *(["predicted"] if predicted is not None else []), "formula"]
    rows = []
    for row in ordered:
        share = "beyond it" if row["term"] in BEYOND else percent(row["bytes"] / peak_bytes)
        cells = [row["term"].replace("_", " "), amount(row["bytes"], unit), share]
        if predicted is not None:
            formula_bytes = predicted.get(row["term"], 0)
            cells.append(amount(formula_bytes, unit) if formula_bytes else "0")
        first, *rest = wrapped(row.get("formula") or "")
        rows += [[*cells, first], *([""] * len(cells) + [line] for line in rest)]
    if not any(row[-1] for row in rows):
        header[-1] = ""
    write_table(header, rows, words=(0, len(header) - 1))
    write_letters(row.get("formula") or "" for row in ordered)


def amount(size_bytes: float, unit: int) -> str:
    """Write bytes in the table's unit, GB or MB; in one of their own if less than a hundredth of it."""
    if 0 < size_bytes < unit / 100:
        return size(size_bytes)
    return gb(size_bytes) if unit == GB else mb(size_bytes)


def wrapped(formula: str) -> list[str]:
    """Cut a formula before a plus into lines; a number alone is told as a size.

    Examples
    --------
    >>> wrapped("67108864")
    ['64 MiB, whatever the sizes']
    """
    if formula.isdigit():
        number = int(formula)
        told = f"{number // MIB} MiB" if number and number % MIB == 0 else f"{thousands(number)} B"
        return [f"{told}, whatever the sizes"]
    lines = [""]
    for number, term in enumerate(formula.split(" + ")):
        joined = f"{lines[-1]} + {term}" if number else term
        if number and len(joined) > FORMULA_WIDTH:
            lines.append(f"+ {term}")
        else:
            lines[-1] = joined
    return lines


def write_letters(formulas: Iterable[str]) -> None:
    """Print what the letters of formulas stand for."""
    used = {letter for formula in formulas for letter in letters_of(formula)}
    told = ", ".join(f"{letter}{GLUE}{words}" for letter, words in LETTERS.items() if letter in used)
    if told:
        lines = textwrap.fill(f"letters: {told}", 108, subsequent_indent="  ", break_on_hyphens=False)
        typer.echo(lines.replace(GLUE, " "))


def letters_of(formula: str) -> Iterator[str]:
    """Yield the letters of a formula; words, as in "8 B a logit", are none.

    Examples
    --------
    >>> list(letters_of("2·Ψ/N + 5·a·s²")), list(letters_of("8 B a logit"))
    (['Ψ', 'N', 'a', 's'], [])
    """
    for term in formula.split(" + "):
        pieces = [piece.rstrip("⁰¹²³⁴⁵⁶⁷⁸⁹") for piece in re.split("[·/]", term)]
        names = [piece for piece in pieces if not piece.isdigit()]
        if all(name in LETTERS for name in names):
            yield from names
