"""Blocks written as lines: each operation with what it makes and what it still holds, from which lifetimes
follow.

A tensor is born with the line that makes it. It dies with the last line of its segment that holds it, or
with the last one of backward if any does: then forward saves it. An autograd node lets its saved tensors go
at its end, so where a node has several lines the last of them holds what the node saved; and a line of
forward also holds what a Python variable keeps to the end of its function.

Where a schedule splits backward, a gradient that a line for weights holds lives until that line in W. What
forward saved stays too: `torch.distributed.pipelining` computes I with `retain_graph`, so that every node
below the stage's last weight lives until W has run the last of them. Only the node of a weight lets go as W
runs it (`_backward.py` of torch 2.13, `stage_backward_input` and `stage_backward_weight`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from playbook.frameworks.parts import block_gradient, block_input, weights
from playbook.program.block import Block, Junction, Tensor, Weight
from playbook.program.op import END, FIRST, At, Op, Region, Size, rows
from playbook.spec import Parameter

INPUT, GRADIENT = "input", "gradient"
"""What a block is handed: the residual stream by the block before, its gradient by the block after."""


class Made(NamedTuple):
    """A tensor that a line makes: name, bytes before any pass, and what tensor parallelism leaves of it."""

    name: str
    bytes: Size
    region: Region = "full"
    term: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One operation.

    Parameters
    ----------
    owner, op, flops, region, group
        As for `Op`.
    makes
        Tensors that are born with it.
    holds
        Names of tensors that it reads, or that live until its end for another reason.
    completes
        Parameters whose gradient it makes.
    for_weights
        Whether it serves such a gradient only, though another line completes it.
    takes
        Parameters whose gradient is handed on at its end, where an earlier line of the same node made it.
    """

    owner: str
    op: str
    makes: tuple[Made, ...] = ()
    holds: tuple[str, ...] = ()
    flops: Size = 0
    region: Region = "full"
    completes: tuple[str, ...] = ()
    for_weights: bool = False
    takes: tuple[str, ...] = ()
    group: str = ""


class Segment:
    """Lines of forward or of backward with their rows."""

    def __init__(self, phase: str, lines: Sequence[Line]) -> None:
        self.letter = phase
        self.lines = tuple(lines)
        self.rows = rows(
            Op(
                owner=line.owner,
                op=line.op,
                phase=phase,
                flops=line.flops,
                region=line.region,
                group=line.group,
                for_weights=line.for_weights or bool(line.completes),
            )
            for line in lines
        )

    def last_holder(self, name: str) -> At | None:
        """Row of the last line that holds a tensor."""
        found = [op.name for op, line in zip(self.rows, self.lines, strict=True) if name in line.holds]
        return At(self.letter, found[-1]) if found else None  # type: ignore[arg-type]

    def outside(self, group: str) -> "Segment":
        """The same without the lines of a group; rows keep their names."""
        rest = Segment(self.letter, ())
        pairs = [(op, line) for op, line in self._pairs if line.group != group]
        rest.rows, rest.lines = tuple(op for op, _ in pairs), tuple(line for _, line in pairs)
        return rest

    def holds(self, name: str, group: str) -> bool:
        """Whether a line of a group holds a tensor."""
        return any(name in line.holds for line in self.lines if line.group == group)

    def weight_end(self, name: str) -> At | None:
        """Row of the last line for weights that holds a gradient."""
        found = [op.name for op, line in self._pairs if name in line.holds and op.for_weights]
        return At("B", found[-1]) if found else None

    def saved_by(self, name: str) -> tuple[str, ...]:
        """Rows for weights whose nodes alone saved a tensor of forward; none if another node did too."""
        holders = [op for op, line in self._pairs if name in line.holds]
        late = tuple(op.name for op in holders if op.for_weights)
        return late if {op.owner for op in holders} == {op.owner for op in holders if op.for_weights} else ()

    def graph_end(self, name: str) -> At | None:
        """Row until which autograd's graph keeps a tensor of forward after I.

        That is the node of a weight, if no other node saved it; none, if only nodes behind the block's last
        weight did, which is what the loss saves; else the last row of the stage's W.
        """
        holders = [(place, op) for place, (op, line) in enumerate(self._pairs) if name in line.holds]
        late = [op for _, op in holders if op.for_weights]
        if {op.owner for _, op in holders} == {op.owner for op in late}:
            return At("B", late[-1].name)
        first = min((place for place, (op, _) in enumerate(self._pairs) if op.for_weights), default=0)
        return None if holders[-1][0] < first else At("W", END, FIRST)

    @property
    def _pairs(self) -> list[tuple[Op, Line]]:
        return list(zip(self.rows, self.lines, strict=True))

    def born(self) -> Iterable[tuple[At, Made]]:
        """Every tensor that the lines make, with the row of its birth."""
        for op, line in zip(self.rows, self.lines, strict=True):
            for made in line.makes:
                yield At(self.letter, op.name), made  # type: ignore[arg-type]

    def completed(self) -> dict[str, str]:
        """Row that completes the gradient of each parameter."""
        pairs = zip(self.rows, self.lines, strict=True)
        return {name: op.name for op, line in pairs for name in line.completes}

    def taken(self, weight: Weight) -> Weight:
        """Note where a weight's gradient is handed on."""
        pairs = zip(self.rows, self.lines, strict=True)
        found = [op.name for op, line in pairs if weight.name in line.takes]
        return replace(weight, taken=At("B", found[-1])) if found else weight


def block(
    name: str,
    forward: Sequence[Line],
    backward: Sequence[Line],
    *,
    stream: Size,
    parameters: tuple[Parameter, ...],
    junctions: tuple[Junction, ...] = (),
    layered: bool = False,
) -> Block:
    """Make a block of its lines.

    Parameters
    ----------
    stream
        Bytes of the residual stream, which the block is handed and hands on.
    parameters
        Its weights; every one is completed by a line of backward.
    """
    ahead, back = Segment("F", forward), Segment("B", backward)
    return Block(
        name=name,
        layered=layered,
        forward=ahead.rows,
        backward=back.rows,
        tensors=(*handed(stream, ahead, back), *of_forward(ahead, back), *of_backward(back)),
        weights=tuple(map(back.taken, weights(parameters, back.completed()))),
        junctions=junctions,
    )


def handed(stream: Size, ahead: Segment, back: Segment) -> Iterable[Tensor]:
    """What the neighbours hand in."""
    last_use, release = ahead.last_holder(INPUT), back.last_holder(INPUT)
    if last_use is not None:
        given = block_input(stream, last_use.row, release.row if release else None)
        yield (
            replace(given, weight_end=back.graph_end(INPUT)) if release else replace(given, term="temporary")
        )
    returned = back.last_holder(GRADIENT)
    if returned is not None:
        yield replace(block_gradient(stream, returned.row), weight_end=back.weight_end(GRADIENT))


def of_forward(ahead: Segment, back: Segment) -> Iterable[Tensor]:
    """Tensors born in forward: saved if a line of backward holds them."""
    rest = back.outside("core")
    for birth, made in ahead.born():
        end, release = ahead.last_holder(made.name) or birth, back.last_holder(made.name)
        term = made.term or ("activations" if release else "temporary")
        tensor = Tensor(
            name=made.name, term=term, bytes=made.bytes, birth=birth, fwd_end=end, region=made.region
        )
        if release:
            ends = back.graph_end(made.name)
            tensor = replace(tensor, bwd_end=release, weight_end=ends, saved_by=back.saved_by(made.name))
        yield of_core(tensor, ahead, rest)


def of_core(tensor: Tensor, ahead: Segment, rest: Segment) -> Tensor:
    """Note what a tensor of forward is to the attention core, and which row outside it holds it last."""
    made = {op.name for op in ahead.rows if op.group == "core"}
    if tensor.birth.row in made:
        end = rest.last_holder(tensor.name)
        kept = (end, rest.graph_end(tensor.name)) if end else None
        return replace(tensor, group="core", kept=kept)
    return replace(tensor, group="into core") if ahead.holds(tensor.name, "core") else tensor


def of_backward(back: Segment) -> Iterable[Tensor]:
    """Tensors born in backward."""
    for birth, made in back.born():
        yield Tensor(
            name=made.name,
            term=made.term or "temporary",
            bytes=made.bytes,
            birth=birth,
            bwd_end=back.last_holder(made.name) or birth,
            weight_end=back.weight_end(made.name),
            region=made.region,
        )
