"""What a command prints: one JSON object, or aligned text with units."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import typer


def write_json(content: Mapping[str, Any]) -> None:
    """Print one JSON object on standard output."""
    typer.echo(json.dumps(as_json(content), ensure_ascii=False))


def as_json(value: Any) -> Any:
    """Turn numpy's numbers, paths, tables and not-a-number into what JSON has."""
    if isinstance(value, Mapping):
        return {str(key): as_json(item) for key, item in value.items()}
    if hasattr(value, "to_dict") and hasattr(value, "columns"):
        return [as_json(row) for row in value.to_dict("records")]
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    if hasattr(value, "item") and not isinstance(value, str):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def write_pairs(pairs: Iterable[tuple[str, str]]) -> None:
    """Print names and values in two columns."""
    rows = list(pairs)
    width = max((len(name) for name, _ in rows), default=0)
    for name, value in rows:
        typer.echo(f"{name:<{width}}  {value}")


def write_table(header: Sequence[str], rows: Iterable[Sequence[str]], words: Sequence[int] = (0,)) -> None:
    """Print rows under a header: the columns numbered in `words` flush left, the others flush right."""
    lines = [tuple(header), *(tuple(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    for line in lines:
        cells = [
            text.ljust(width) if column in words else text.rjust(width)
            for column, (text, width) in enumerate(zip(line, widths, strict=True))
        ]
        typer.echo("  ".join(cells).rstrip())
