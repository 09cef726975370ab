"""A collective step by step: who holds what, what moves, what it costs against the size of the buffer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from playbook.collectives import Collective, State, algorithms, collective
from playbook.pictures.collective_words import crossing_words, headline, progress, step_title, table_rows
from playbook.pictures.words import buffer_size
from playbook.spec import Link
from playbook.units import counted, seconds

if TYPE_CHECKING:
    from playbook.pictures.collective_run import MeasuredCollective

SIZES = tuple(1024 * 2**power for power in range(17))
"""Buffers of the chart, 1 KiB to 64 MiB."""
MASKS = 8
"""Up to so many ranks a cell says whose numbers are in it; beyond, how many."""
MOST_RANKS = 64
"""Ranks of which the grid can still be drawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveView:
    """What is looked at: a collective, the size of its buffer, a step.

    And the link that its time is computed for.
    """

    one: Collective
    size_bytes: int
    step: int
    link: Link
    link_words: str


def default_step(one: Collective) -> int:
    """The step to show first: the last of the first phase, where the halves of an all-reduce meet."""
    return len(one.plan.phases[one.op][0].load(one.ranks))


def collective_view(
    op: str, algorithm: str, ranks: int, size_bytes: int, step: int | None, link: Link, link_words: str
) -> CollectiveView:
    """Look at a step of a collective; a step beyond the last is the last, None the one to show first.

    Raises
    ------
    ValueError
        For what `collective` refuses, more ranks than a grid can show, or a size below one byte.
    """
    one = collective(op, algorithm, ranks)
    if ranks > MOST_RANKS:
        raise ValueError(
            f"ranks={ranks}: the grid shows at most {MOST_RANKS}; pb.collective() takes any number"
        )
    if size_bytes < 1:
        raise ValueError(f"size_bytes={size_bytes}; use 1 byte or more, such as 1 MiB = 1048576")
    shown = default_step(one) if step is None else min(max(step, 0), len(one.load))
    return CollectiveView(one=one, size_bytes=size_bytes, step=shown, link=link, link_words=link_words)


def collective_picture(view: CollectiveView, measured: MeasuredCollective | None = None) -> dict[str, Any]:
    """Picture data of one step.

    Parameters
    ----------
    view
        What is looked at.
    measured
        What real ranks did, if they ran.
    """
    one = view.one
    return {
        "kick": f"{one.operation.words} · {one.algorithm} · {counted(one.ranks, 'rank')}",
        "headline": headline(view, measured),
        "title": step_title(view),
        "sent": progress(view),
        "step": view.step,
        "phases": _phases(one),
        "grid": _grid(view),
        "chart": _chart(view),
        "table": table_rows(view, measured),
        "foot": f"time: {view.link_words} · steps one after another, equal links",
    }


def _phases(one: Collective) -> list[list[Any]]:
    """Name and number of steps of each phase."""
    return [[phase.words, len(phase.load(one.ranks))] for phase in one.plan.phases[one.op]]


def _grid(view: CollectiveView) -> dict[str, Any]:
    one, masks = view.one, view.one.ranks <= MASKS
    before = one.states[max(view.step - 1, 0)]
    named = one.chunks != one.ranks
    return {
        "ranks": one.ranks,
        "chunks": one.chunks,
        "masks": masks,
        "sums": one.op in ("all_reduce", "reduce_scatter"),
        "names": [one.chunk_name(chunk).removeprefix("block ") for chunk in range(one.chunks)]
        if named
        else None,
        "before": _held(before, masks),
        "after": _held(one.states[view.step], masks),
        "moves": [[t.src, t.dst, t.chunk] for t in one.steps[view.step - 1]] if view.step else [],
    }


def _held(state: State, masks: bool) -> list[int]:
    """Rank by rank, each chunk's contributors as bits or their number; −1 where it is not held."""
    cells = (held for chunks in state for held in chunks)
    if masks:
        return [-1 if held is None else sum(1 << rank for rank in held) for held in cells]
    return [-1 if held is None else len(held) for held in cells]


def _chart(view: CollectiveView) -> dict[str, Any]:
    one = view.one
    able = [name for name, algorithm in algorithms().items() if one.op in algorithm.phases]
    lines = [collective(one.op, name, one.ranks) for name in able]
    chosen = one.seconds(view.size_bytes, view.link)
    return {
        "sizes": list(SIZES),
        "title": f"{counted(one.ranks, 'rank')}, {view.link_words}",
        "lines": [
            {
                "name": line.algorithm,
                "words": line.algorithm,
                "chosen": line.algorithm == one.algorithm,
                "seconds": [float(f"{line.seconds(size, view.link):.4g}") for size in SIZES],
            }
            for line in lines
        ],
        "crossing": _crossing(lines, view.link),
        "chosen": {
            "bytes": view.size_bytes,
            "seconds": chosen,
            "words": f"{buffer_size(view.size_bytes)}: {seconds(chosen)}",
        },
    }


def crossing_bytes(first: Collective, second: Collective, link: Link) -> int | None:
    """Smallest buffer of the chart's range from which on the order of two algorithms' times is turned round.

    None if one of them is faster at both ends.
    """

    def lead(size: int) -> float:
        return first.seconds(size, link) - second.seconds(size, link)

    low, high = SIZES[0], SIZES[-1]
    if lead(low) * lead(high) >= 0:
        return None
    sign = lead(low) > 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if (lead(middle) > 0) == sign else (low, middle)
    return high


def _crossing(lines: Sequence[Collective], link: Link) -> dict[str, Any] | None:
    if len(lines) != 2:
        return None
    at = crossing_bytes(lines[0], lines[1], link)
    if at is None:
        return None
    first_below = lines[0].seconds(SIZES[0], link) < lines[1].seconds(SIZES[0], link)
    below, above = (0, 1) if first_below else (1, 0)
    return crossing_words(at, lines[below].algorithm, lines[above].algorithm)


def collective_copies(view: CollectiveView) -> dict[str, str]:
    """The collective as Python, as command and as JSON."""
    one = view.one
    given = {"op": one.op, "algorithm": one.algorithm, "ranks": one.ranks, "size_bytes": view.size_bytes}
    latency, bandwidth = view.link.latency_s, view.link.bandwidth_bytes_per_s
    python = (
        "import playbook as pb",
        "from playbook.spec import Link",
        "",
        f'c = pb.collective("{one.op}", algorithm="{one.algorithm}", ranks={one.ranks})',
        f"link = Link(latency_s={latency:g}, bandwidth_bytes_per_s={bandwidth:g})",
        f"c.bytes_sent_per_rank({view.size_bytes}), c.seconds({view.size_bytes}, link)",
        "",
    )
    options = f"--algorithm {one.algorithm} --ranks {one.ranks} --bytes {view.size_bytes}"
    command = f"playbook collective {one.op} {options}"
    return {"python": "\n".join(python), "command": command, "json": json.dumps(given, indent=2)}
