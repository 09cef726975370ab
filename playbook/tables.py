"""The four tables that every source reports into, with their closed sets of words.

A row is keyed by scenario, rank and op, so that comparing two sources is a join. Instants are no closed set:
one is read off the peak's row as its phase and owner, such as "B layers.78".
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pandas import DataFrame

SCHEMA_VERSION = 1

TERMS = (
    *("parameters", "gradients", "optimizer", "master_weights", "activations", "logits", "unsharded"),
    *("communication_buffers", "temporary", "kv_cache", "workspace", "context", "reserved_unused"),
)
PHASES = ("F", "R", "B", "I", "W", "O", "prefill", "decode")
AXES = ("dp", "dp_replicate", "tp", "pp", "cp", "ep")
KINDS = (
    *("forward", "backward", "backward_input", "backward_weight", "recompute", "collective"),
    *("send", "receive", "wait", "optimizer", "idle"),
)
SOURCES = (
    *("formula", "simulated", "traced", "tracked:gloo", "emulated", "twin"),
    *("measured:gloo", "measured:nccl", "published"),
)

MEMORY = ("scenario", "rank", "op", "instant", "term", "bytes", "formula", "source")
TRAFFIC = (
    *("scenario", "rank", "op", "step", "phase", "axis", "collective", "count"),
    *("payload_bytes", "wire_bytes", "source"),
)
TIMELINE = (
    *("scenario", "rank", "op", "lane", "kind", "label", "microbatch", "start_s", "duration_s"),
    *("low_s", "high_s", "bytes", "source"),
)
PARITY = ("scenario", "quantity", "baseline", "value", "relative_error", "tolerance", "ok")

TABLES = {"memory": MEMORY, "traffic": TRAFFIC, "timeline": TIMELINE, "parity": PARITY}
CLOSED = {"term": TERMS, "phase": PHASES, "axis": AXES, "kind": KINDS, "source": SOURCES}

Rows = Iterable[Mapping[str, Any]]
Columns = Mapping[str, Any]


def table(name: str, rows: Rows | Columns = ()) -> "DataFrame":
    """Return one of the four tables as a DataFrame in the order of its columns.

    Parameters
    ----------
    name
        "memory", "traffic", "timeline" or "parity".
    rows
        Mappings, one a row, or one mapping of columns. Columns that are left out are empty.

    Raises
    ------
    ValueError
        If the table or a column is not known, or a word is not in its closed set.

    Notes
    -----
    The version of the form is in `frame.attrs["schema_version"]`, the table's name in `frame.attrs["table"]`.
    """
    import pandas as pd

    if name not in TABLES:
        raise ValueError(f"table {name!r} is not known; tables are {', '.join(TABLES)}")
    columns = TABLES[name]
    frame = pd.DataFrame(dict(rows)) if isinstance(rows, Mapping) else pd.DataFrame(list(rows))
    unknown = [column for column in frame.columns if column not in columns]
    if unknown:
        raise ValueError(f"table {name} has no column {unknown[0]!r}; its columns are {', '.join(columns)}")
    frame = frame.reindex(columns=list(columns))
    for column in set(columns) & set(CLOSED):
        check_words(name, column, frame[column].dropna().unique())
    frame.attrs.update(schema_version=SCHEMA_VERSION, table=name)
    return frame


def check_words(name: str, column: str, words: Iterable[object]) -> None:
    """Refuse words that are not in the column's closed set."""
    wrong = [word for word in words if word not in CLOSED[column]]
    if wrong:
        raise ValueError(
            f"table {name}: {column} {wrong[0]!r} is not known; valid are {', '.join(CLOSED[column])}"
        )
