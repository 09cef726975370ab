"""Templates: the rows and tensors of one block, forward and backward, which passes rewrite and assembly
tiles.

A block is a layer, or what stands at an end of a stage: the embedding, the head with its loss, a receive or
a send. Rows are named, never numbered, because passes insert rows; a row's name is `owner/op[@axis]#k`
inside its segment, with `R:` before it where backward computes it again.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from playbook.program.op import END, At, Op, Region, Size, When


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """Memory that a block holds for a while.

    Parameters
    ----------
    name, term
        What it is; which of the memory terms it counts in.
    bytes
        Its size before any pass has divided it.
    birth
        It is there from the start of this row.
    fwd_end
        Row of the last use in forward; None for a tensor that is born later.
    bwd_end
        Row of the release in backward or after it. Set on a tensor of forward, it means saved for backward. A
        tensor of backward with an end in forward goes in the stage's next forward, and here if none follows.
    weight_end
        Row of the release where a schedule splits backward, if it is another one: W needs it longer.
    split_only
        Whether it is memory only there: a gradient that W reads, in an accounting without temporaries, or
        what W computes again.
    saved_by
        Rows of backward for weights whose nodes alone saved it in forward; none if another node did too.
    region, when
        As for `Op`.
    group
        "core" for what a row of the attention core makes that runs again under selective recomputation, "into
        core" for what those rows read.
    kept
        Release of a core's tensor in backward if the core runs again: the last row outside the core that
        holds forward's copy, and its release where a schedule splits backward; None if there is none.
    per_token
        Whether its bytes grow with the tokens, which context parallelism divides (sums of gradients do not).
    alone
        Whether a rank holds one such tensor at a time, the largest of all its stages.
    """

    name: str
    term: str
    bytes: Size
    birth: At
    fwd_end: At | None = None
    bwd_end: At | None = None
    weight_end: At | None = None
    split_only: bool = False
    saved_by: tuple[str, ...] = ()
    region: Region = "whole"
    when: When = "every"
    group: str = ""
    kept: tuple[At, At | None] | None = None
    per_token: bool = True
    alone: bool = False

    @property
    def saved(self) -> bool:
        """Whether forward keeps it for backward."""
        return self.fwd_end is not None and self.bwd_end is not None and not self.crosses

    @property
    def crosses(self) -> bool:
        """Whether it is of backward and goes in the stage's next forward."""
        return self.fwd_end is not None and self.birth.segment == "B"

    @property
    def death(self) -> At | None:
        """Row after whose end it is gone; None stays for good."""
        return self.bwd_end or self.fwd_end


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """One parameter of a block.

    Parameters
    ----------
    name, shape, tp_dim
        As in `spec.Parameter`; passes divide the shape.
    ready
        Row of backward that completes its gradient.
    taken
        Row with whose end the gradient is added to earlier ones, or ready to be sent, if it is a later one.
    born
        Row that makes the gradient's memory, if an earlier one does (a tied table).
    partial
        Mesh axis whose ranks each saw a part of the tokens: the gradient is a partial sum until it is used.
    frozen
        Whether it is not trained: it has no gradient and no optimizer state.
    expert
        Whether it belongs to routed experts; dim 0 of its shape is then the expert.
    """

    name: str
    shape: tuple[Size, ...]
    tp_dim: int | None = None
    ready: At = At("B", END)
    taken: At | None = None
    born: At | None = None
    partial: str | None = None
    expert: bool = False
    frozen: bool = False

    @property
    def numel(self) -> Size:
        """Elements on this rank before any sharding among data-parallel ranks."""
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Junction:
    """Where a tensor-parallel part of a block begins and ends (a column-split product, a row-split one).

    Parameters
    ----------
    enter, leave
        Owners of the collectives at the part's input and output; None where the part has no such end.
    input_rows
        Rows of forward before which the input must be whole, and of backward after which its gradient is a
        partial sum.
    output_rows
        Rows of forward after which the output is a partial sum, and of backward before which its gradient
        must be whole.
    again
        Row of backward that needs the whole input once more (the first weight gradient).
    gathers
        Whether the output is gathered, not added: a column-split product whose result must be whole (logits).
    bytes
        Bytes of the whole tensor that travels.
    """

    enter: str | None = None
    leave: str | None = None
    input_rows: tuple[str, str] | None = None
    output_rows: tuple[str, str | None] | None = None
    again: str | None = None
    gathers: bool = False
    bytes: Size = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """The template of one block.

    Parameters
    ----------
    name
        "layer", "embedding", "head", "receive" or "send".
    layered
        Whether owners are relative to a layer.
    forward, backward, optimizer
        Rows of each segment, in order of issue.
    copies
        Rows that come once, after the stage's last backward: the sum of its gradients with those of its copy
        on another rank, or their reduction where that waits.
    tensors
        What it holds; a tensor between two blocks belongs to the one that consumes it.
    weights
        Its parameters.
    junctions
        Its tensor-parallel parts.
    loss
        First row of forward and last row of backward of a loss that is worked out outside the model's own
        forward; None where the model works it out.
    passes
        The passes that have rewritten it.
    """

    name: str
    layered: bool = False
    forward: tuple[Op, ...] = ()
    backward: tuple[Op, ...] = ()
    optimizer: tuple[Op, ...] = ()
    copies: tuple[Op, ...] = ()
    tensors: tuple[Tensor, ...] = ()
    weights: tuple[Weight, ...] = ()
    junctions: tuple[Junction, ...] = ()
    loss: tuple[str, str] | None = None
    passes: frozenset[str] = frozenset()

    def segment(self, letter: str) -> tuple[Op, ...]:
        """Rows of F, B, O or G."""
        return {"F": self.forward, "B": self.backward, "O": self.optimizer, "G": self.copies}[letter]

    @property
    def first(self) -> bool:
        """Whether it stands at the start of a stage."""
        return self.name in ("embedding", "receive")

    @property
    def numel(self) -> Size:
        """Elements of all its weights on this rank."""
        return total(self.weights)


def total(weights: Iterable[Weight]) -> Size:
    """Elements of several weights together."""
    return sum((weight.numel for weight in weights), 0)
