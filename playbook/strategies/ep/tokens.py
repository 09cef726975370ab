"""Routed tokens of a block: their sizes, what of them a rank has, and the rows that route them."""

from collections.abc import Callable, Iterable

from playbook.program.block import Block
from playbook.program.op import Op, Size, rows
from playbook.program.policy import Context
from playbook.program.polynomial import Polynomial, symbol
from playbook.program.tensor_bytes import USUAL

ORDINARY = {**USUAL, "b": 1, "s": 4096}
"""Sizes that tell the largest of several formulas."""


def apart(ctx: Context) -> bool:
    """Whether experts lie on an axis of their own, whose ranks have the same tokens."""
    return ctx.ep > 1 and ctx.ep_rule == "independent"


def own_rows(size: Size, ctx: Context) -> Size:
    """Of the rows that a rank's tokens make, those that it works on, or as many from other ranks."""
    return ctx.divide(size, ctx.ep, "ep") if apart(ctx) else size


def gathers_tokens(ctx: Context) -> bool:
    """Whether the ranks of etp have other tokens each; without sequence parallelism those of tp have the
    same."""
    return ctx.sequence_parallel or ctx.etp != ctx.tp


def times(size: Size, ctx: Context) -> Size:
    """A size for each of the ranks of etp."""
    if isinstance(size, Polynomial) and ctx.etp > 1:
        return size * symbol("etp")
    return size * ctx.etp


def routed_bytes(block: Block) -> list[Size]:
    """Bytes of what a block holds of routed tokens; the most are those of all their features."""
    return [tensor.bytes for tensor in block.tensors if tensor.region == "routed"]


def largest(sizes: Iterable[Size]) -> Size:
    """The largest of some sizes, 0 of none."""
    return max(sizes, key=ordinary, default=0)


def smallest(sizes: Iterable[Size]) -> Size:
    """The smallest of some sizes, 0 of none."""
    return min(sizes, key=ordinary, default=0)


def ordinary(size: Size) -> int:
    """A size in numbers, to compare formulas."""
    return size.at(ORDINARY) if isinstance(size, Polynomial) else size


def behind(ops: tuple[Op, ...], row: Op, place: Callable[[tuple[Op, ...]], int]) -> tuple[Op, ...]:
    """Put a row behind the one at a place."""
    found = place(ops) + 1
    return rows((*ops[:found], row, *ops[found:]))


def last_routed(ops: tuple[Op, ...]) -> int:
    """Place of the last row of routed tokens."""
    return max(place for place, op in enumerate(ops) if op.region in ("routed", "expert"))


def first_routed(ops: tuple[Op, ...]) -> int:
    """Place of the first row of routed tokens."""
    return min(place for place, op in enumerate(ops) if op.region in ("routed", "expert"))
