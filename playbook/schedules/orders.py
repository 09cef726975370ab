"""Orders of actions from elsewhere: torch's compute-only CSV, and the checks that an order is whole."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from playbook.schedules.action import Action

_PAIR = re.compile(r"\(([^;]*);([^;]*)\)OVERLAP_F_B", re.IGNORECASE)
_MESSAGE = re.compile(r"\d+(UNSHARD|RESHARD|REDUCE_GRAD|SEND_[FB]|RECV_[FB])\d*", re.IGNORECASE)

Orders = Sequence[Sequence[Action]]
"""Each rank's actions in the order in which it runs them."""


def read_orders(path: str | Path) -> tuple[tuple[Action, ...], ...]:
    """Read a CSV with one row a rank and one action a cell; empty cells (waiting) are left out.

    The format is the compute-only one of torch.distributed.pipelining.

    Raises
    ------
    ValueError
        If there is no such file, it is no text, or a cell is no action; the text names row and column.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(
            f"{path}: there is no such file; give a CSV with one row a rank, as in 0F0,0F1,0B0,0B1"
        )
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ValueError(
            f"{path}: this is no text in UTF-8; give a CSV with one row a rank, as in 0F0,0F1,0B0,0B1"
        ) from None
    return parse_orders(text, str(path))


def parse_orders(text: str, name: str = "order") -> tuple[tuple[Action, ...], ...]:
    """Read the same from a text; `name` says in errors what it is.

    Examples
    --------
    >>> [str(action) for action in parse_orders("0F0,0B0")[0]]
    ['0F0', '0B0']
    """
    rows = [row for row in csv.reader(text.splitlines()) if row]
    return tuple(_parse_row(name, number, row) for number, row in enumerate(rows, start=1))


def _parse_row(path: str, number: int, row: list[str]) -> tuple[Action, ...]:
    order: list[Action] = []
    for column, cell in enumerate(row, start=1):
        if not cell.strip():
            continue
        try:
            order += _parse_cell(cell.strip())
        except ValueError as error:
            raise ValueError(f"{path}, row {number}, column {column}: {error}") from None
    return tuple(order)


def _parse_cell(cell: str) -> tuple[Action, ...]:
    """One action, or an overlapped pair as in (0F1;7B0)OVERLAP_F_B."""
    pair = _PAIR.fullmatch(cell)
    if pair is None:
        if _MESSAGE.fullmatch(cell):
            raise ValueError(f"{cell} is no computation; leave messages and resharding out of the order")
        if cell.startswith("("):
            raise ValueError(f"{cell} is no overlapped pair; write it as in (0F1;7B0)OVERLAP_F_B")
        return (Action.parse(cell),)
    first, second = (Action.parse(text) for text in pair.groups())
    if (first.kind, second.kind) != ("F", "B"):
        raise ValueError(
            f"{cell} overlaps {first.kind} and {second.kind}; a pair is a forward, then a backward"
        )
    return (first, second._replace(beside=True))


def orders_as_csv(orders: Orders) -> str:
    """Write orders as torch's compute-only CSV, one row a rank."""
    return "".join(",".join(_cells(order)) + "\n" for order in orders)


def _cells(order: Sequence[Action]) -> list[str]:
    cells: list[str] = []
    for action in order:
        if action.beside:
            cells[-1] = f"({cells[-1]};{action})OVERLAP_F_B"
        else:
            cells.append(str(action))
    return cells


def chains_of(orders: Orders, stages: int) -> int:
    """Read off in how many directions micro-batches pass: 2 where each visits just one half of the stages."""
    visited: dict[int, set[int]] = {}
    for order in orders:
        for action in order:
            visited.setdefault(action.microbatch, set()).add(action.stage)
    halves = [set(range(stages // 2)), set(range(stages // 2, stages))]
    return 2 if stages % 2 == 0 and all(stops in halves for stops in visited.values()) else 1


def placement_of(orders: Orders) -> tuple[int, ...]:
    """Read off which rank owns each stage.

    Raises
    ------
    ValueError
        If a rank has no action, a stage is run by two ranks, or a stage number is left out.
    """
    owner: dict[int, int] = {}
    for rank, order in enumerate(orders):
        if not order:
            raise ValueError(f"rank {rank} has no action; every rank of an order runs at least one stage")
        for stage in {action.stage for action in order}:
            if owner.setdefault(stage, rank) != rank:
                raise ValueError(
                    f"stage {stage} is run by ranks {owner[stage]} and {rank}; a stage belongs to one rank"
                )
    missing = sorted(set(range(len(owner))) - set(owner))
    if missing or not owner:
        raise ValueError(f"stage {missing[0] if missing else 0} is run by no rank; number the stages from 0")
    return tuple(owner[stage] for stage in range(len(owner)))


def check_orders(orders: Orders, stages: int, microbatches: int, chains: int = 1) -> None:
    """Check that every micro-batch goes once through every stage of its chain, forward and back.

    A backward is either fused (B) or split (I, then W), the same way for one micro-batch on one stage.

    Raises
    ------
    ValueError
        If one is missing, runs twice, or runs before what it needs on its own rank.
    """
    depth = stages // chains
    chain = {action.microbatch: action.stage // depth for order in orders for action in order}
    for rank, order in enumerate(orders):
        _check_pairs(rank, order)
        order = [action._replace(beside=False) for action in order]
        _check_repeats(rank, order)
        position = {action: place for place, action in enumerate(order)}
        for stage in sorted({action.stage for action in order}):
            for microbatch in range(microbatches):
                if chain.get(microbatch, 0) == stage // depth:
                    _check_trip(rank, stage, microbatch, position)
        for action in order:
            if action.microbatch >= microbatches or action.stage >= stages:
                raise ValueError(
                    f"rank {rank} runs {action}, outside {stages} stages and {microbatches} micro-batches"
                )


def _check_pairs(rank: int, order: Sequence[Action]) -> None:
    for place, action in enumerate(order):
        before = order[place - 1] if place else None
        if action.beside and (action.kind != "B" or before is None or before.kind != "F" or before.beside):
            raise ValueError(
                f"rank {rank} runs {action} beside {before or 'nothing'}; "
                f"a pair is a forward, then a backward"
            )


def _check_repeats(rank: int, order: Sequence[Action]) -> None:
    action, count = Counter(order).most_common(1)[0]
    if count > 1:
        raise ValueError(f"rank {rank} runs {action} {count} times; each action runs once")


def _check_trip(rank: int, stage: int, microbatch: int, position: dict[Action, int]) -> None:
    fused = Action(stage, "B", microbatch) in position
    split = Action(stage, "I", microbatch) in position or Action(stage, "W", microbatch) in position
    if fused and split:
        raise ValueError(
            f"rank {rank} runs {stage}B{microbatch} and also {stage}I{microbatch} or {stage}W{microbatch}; "
            f"a backward is fused (B) or split (I and W), not both"
        )
    trip = [Action(stage, kind, microbatch) for kind in ("FIW" if split else "FB")]
    for action in trip:
        if action not in position:
            raise ValueError(
                f"rank {rank} never runs {action}; a micro-batch goes once through every stage, both ways"
            )
    for earlier, later in zip(trip, trip[1:], strict=False):
        if position[earlier] > position[later]:
            raise ValueError(f"rank {rank} runs {later} before {earlier}, which it needs; swap them")
