"""Rows of a template: operations in order of issue, and places that name them."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from playbook.program.polynomial import Polynomial

Size = int | Polynomial
"""Bytes or FLOPs: a number, or a polynomial in the model's sizes."""

Segment = Literal["S", "F", "B", "I", "W", "O", "G"]
"""State that is there before the step, forward, backward (recompute in it), its part for inputs, its part
for weights, optimizer step, what is done once with gradients after the stage's last backward."""

Region = Literal["full", "tp", "kv", "gathered", "whole", "expert", "routed"]
"""What tensor parallelism leaves of a tensor: `tp` 1/t (heads, feed-forward columns), `kv` 1/t but never
less than a head, `full` all of it, or 1/t under sequence parallelism (residual stream, norms), `gathered` a
norm's output, 1/t only where the framework saves the shard, `whole` always all of it.

Two are of routed tokens, T·K of them in all: `expert` inside an expert, split along its width by tensor
parallelism in it; `routed` at its input and output, with all features."""

When = Literal["every", "first", "last", "later", "step", "sharded"]
"""Micro-batches of a row or tensor: every one, the first, the last, all but the first; `step` for a tensor
that is born in the first and dies in the last; `sharded` for runs that do not follow a backward of their
stage, which leaves its parameters gathered."""

START, END = "^", "$"
FIRST, LAST = "first", "last"


class At(NamedTuple):
    """A place in a step: a row of a block's segment.

    `row` is a row's name, START or END; `block` 0 is this block, −1 the one before it in depth, +1 the one
    after, FIRST and LAST those at the ends of the stage; `otherwise` is where it is if that block has no
    such row.

    Where a schedule splits backward, a place in B is in I or W as its row is, START and END of a block in I
    if the block has rows there. Segments I and W say which: the row itself, or else the part's nearest one.
    `W_END` is where a stage's W ends, whatever the order of its blocks.
    """

    segment: Segment
    row: str = START
    block: int | str = 0
    otherwise: str = ""


W_END = At("W", END, FIRST)
OPTIMIZER = At("O", "/optimizer#0", FIRST)
BEFORE_STEP = At("O", "<")
"""The last row before the optimizer's, whatever run of the rank it is in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One operation of a template.

    Parameters
    ----------
    owner
        Module path, relative to the layer in a layer's block unless `absolute`.
    op
        Name without namespace, as ids use it.
    phase
        F, R, B or O.
    name
        Unique in its segment; `rows` gives it.
    axis
        Mesh axis of a collective, else None.
    flops, payload
        Floating-point operations; bytes of the collective's payload.
    region
        How tensor parallelism divides flops and payload.
    stream
        The queue it runs on: "compute", or a communication queue.
    when
        In which micro-batches it runs.
    issue
        The place of another block behind which the row really runs (a prefetch); it keeps its own owner.
    group
        "core" for the rows of the attention core that selective recomputation runs again, and for those of
        backward that need what they make.
    for_weights
        Whether a row of backward only makes gradients of weights, or passes them on: where a schedule splits
        backward it runs in W.
    ranks
        Ranks of a collective's group where they are not those of its axis (experts' state); else 0.
    turn
        Place among the block's rows in W, from 1 on, where W runs them in another order than backward; blocks
        then go from the first of the stage to the last.
    split_only
        Whether it runs only where a schedule splits backward.
    """

    owner: str
    op: str
    phase: str = "F"
    name: str = ""
    axis: str | None = None
    flops: Size = 0
    payload: Size = 0
    region: Region = "whole"
    stream: str = "compute"
    when: When = "every"
    issue: At | None = None
    group: str = ""
    absolute: bool = False
    for_weights: bool = False
    ranks: int = 0
    turn: int = 0
    split_only: bool = False

    @property
    def label(self) -> str:
        """The operation with its axis, as ids write it."""
        return f"{self.op}@{self.axis}" if self.axis else self.op

    @property
    def kind(self) -> str:
        """One of the tables' kinds."""
        if self.op in ("send", "receive"):
            return self.op
        if self.axis:
            return "collective"
        return {"F": "forward", "R": "recompute", "B": "backward", "O": "optimizer"}[self.phase]


def rows(ops: Iterable[Op]) -> tuple[Op, ...]:
    """Name the rows of one segment by owner, operation and occurrence.

    Examples
    --------
    >>> [row.name for row in rows([Op(owner="mlp", op="mm"), Op(owner="mlp", op="mm", phase="R")])]
    ['mlp/mm#0', 'R:mlp/mm#0']
    """
    counts: dict[str, int] = {}
    named = []
    for op in ops:
        if op.name:
            named.append(op)
            continue
        stem = f"{'R:' if op.phase == 'R' else ''}{op.owner}/{op.label}"
        counts[stem] = counts.get(stem, -1) + 1
        named.append(replace(op, name=f"{stem}#{counts[stem]}"))
    return tuple(named)


def insert(
    ops: tuple[Op, ...], new: Op, *, before: str | None = None, after: str | None = None
) -> tuple[Op, ...]:
    """Put a row next to a named one; START and END name the ends of the segment.

    Raises
    ------
    ValueError
        If there is no such row.
    """
    anchor = before if before is not None else after
    if anchor in (START, END):
        index = 0 if anchor == START else len(ops)
    else:
        names = [op.name for op in ops]
        if anchor not in names:
            raise ValueError(
                f"no row {anchor!r} to put {new.name or new.op!r} next to; rows are {', '.join(names)}"
            )
        index = names.index(anchor) + (before is None)
    return (*ops[:index], new, *ops[index:])
