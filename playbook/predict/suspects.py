"""The distinct tensors of a step by name and size, and how each grows with sequences and micro-batches."""

import math
from dataclasses import dataclass, replace

import numpy as np

from playbook.predict.memory import symbolic_sizes
from playbook.predict.stages import context, program_of
from playbook.program.block import Block, Weight
from playbook.program.groups import groups
from playbook.program.op import Size
from playbook.program.policy import Context
from playbook.program.polynomial import Polynomial
from playbook.program.step import Program
from playbook.program.tensor_bytes import kind, weight_bytes
from playbook.spec import Scenario

STATE = ("parameters", "gradients", "master_weights", "optimizer")
"""Terms whose tensors a step keeps for each weight apart."""

BETWEEN = "between steps"

OWN = 0.99
"""Share of a weight's state from which a rank is taken to hold all of it: padding aside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A tensor that a step allocates, or what its layers keep of one together.

    Parameters
    ----------
    name, term
        What it is, and which memory term it counts in.
    instant
        Phase and block of its first birth.
    bytes
        Its size; that of all together for a sum.
    count
        How many of it a step has.
    formula
        Its size in the model's symbols.
    tokens_power, batch_power
        Powers of the sequence and of the micro-batch that it grows with; None where terms differ.
    together
        Whether it stands for all of a step.
    """

    name: str
    term: str
    instant: str
    bytes: int
    count: int
    formula: str
    tokens_power: int | None
    batch_power: int | None
    together: bool = False

    @property
    def state(self) -> bool:
        """Whether it is there between steps, so that no allocation inside one asks for it."""
        return self.instant == BETWEEN

    def sequence_of(self, asked: int, sequence: int) -> int | None:
        """Tokens at which it has a size, rounded down; None if it does not grow with them."""
        if not self.tokens_power:
            return None
        return math.floor(sequence * (asked / self.bytes) ** (1 / self.tokens_power))

    def micro_batch_of(self, asked: int, micro_batch: int) -> float | None:
        """Sequences of a micro-batch at which it has a size; None if it does not grow with them."""
        if not self.batch_power:
            return None
        return micro_batch * (asked / self.bytes) ** (1 / self.batch_power)


def suspects(s: Scenario) -> tuple[Suspect, ...]:
    """Tensors of the first and the last pipeline rank, each name and size once."""
    found: dict[tuple[str, int, bool], Suspect] = {}
    for pp_rank in sorted({0, s.layout.pp - 1}):
        for one in of_program(s, program_of(s, s.layout.rank(pp=pp_rank))):
            found.setdefault((one.name, one.bytes, one.together), one)
    return tuple(found.values())


def of_program(s: Scenario, program: Program) -> list[Suspect]:
    """Tensors of one rank's step."""
    held, walk, ctx = program.held, program.memory(), context(s, program.rank)
    counts = np.bincount(held.template, minlength=len(program.templates)).tolist()
    born = np.full(len(program.templates), len(program) - 1)
    np.minimum.at(born, held.template, held.birth)
    found = []
    rows = zip(program.templates, symbolic_sizes(s, program), blocks_of_templates(program), strict=True)
    for number, (tensor, size, block) in enumerate(rows):
        if not counts[number] or not tensor.bytes:
            continue
        assert isinstance(tensor.bytes, int)
        state = tensor.birth.segment == "S"
        one = Suspect(
            name=tensor.name,
            term=tensor.term,
            instant=BETWEEN if state else walk.instant_of(int(born[number])),
            bytes=tensor.bytes,
            count=counts[number],
            formula=str(size),
            tokens_power=power(size, "s"),
            batch_power=power(size, "b"),
        )
        if state and one.term in STATE:
            found += state_of(one, block, weights_of(program), ctx, size)
            continue
        found.append(one)
        if counts[number] > 1 and tensor.saved:
            found.append(together(one))
    return found


def blocks_of_templates(program: Program) -> list[Block]:
    """The block that each tensor template of a program belongs to."""
    return [
        stage.blocks[first]
        for stage in program.stages.values()
        for first in stage.first_of
        for _ in stage.blocks[first].tensors
    ]


def weights_of(program: Program) -> tuple[Weight, ...]:
    """Every weight of a rank's stages once."""
    blocks = {id(block): block for block in blocks_of_templates(program)}.values()
    return tuple({(w.name, w.shape): w for block in blocks for w in block.weights}.values())


def state_of(
    state: Suspect, block: Block, every: tuple[Weight, ...], ctx: Context, size: Polynomial
) -> list[Suspect]:
    """The tensors that a block's state is made of: one a weight, and as many moments of it as there are.

    Notes
    -----
    Adam allocates its two moments apart (`exp_avg`, `exp_avg_sq`), so the sum of both is nobody's size.
    What all weights of a block have of one state stands beside them: flat buffers hold it together. A block
    with more than its weights have stands for the rank: whole weights are dealt out among ranks then.
    """
    full = whole_bytes(block.weights, state.term, ctx)
    dealt = state.bytes > sum(full.values()) / OWN
    kept = whole_bytes(every, state.term, ctx) if dealt else full
    owned = dealt or state.bytes > OWN * sum(full.values())
    ranks = {w: 1 if owned else group.ranks for group in groups(tuple(kept), ctx) for w in group.weights}
    held = sum(size_bytes / ranks[w] for w, size_bytes in kept.items())
    padded = 1 if dealt else state.bytes / held
    each = [weight_state(state, w, size_bytes * padded, ranks[w], ctx) for w, size_bytes in kept.items()]
    parts = {moments(w, ctx) if state.term == "optimizer" else 1 for w in kept}
    if len(each) == 1 or len(parts) > 1:
        return each
    return [*each, together_of(state, parts.pop(), size)]


def whole_bytes(weights: tuple[Weight, ...], term: str, ctx: Context) -> dict[Weight, int]:
    """Bytes of one term of each weight that has any, before ranks share it."""
    sizes = {w: whole(weight_bytes(w, w.numel, term, ctx)) for w in weights}
    return {w: size_bytes for w, size_bytes in sizes.items() if size_bytes}


def together_of(state: Suspect, number: int, size: Polynomial) -> Suspect:
    """One of some moments (or the one state) of all weights of a block."""
    return replace(
        state,
        name=f"all {state.name}" + f", one of {number}" * (number > 1),
        bytes=state.bytes // number,
        count=number * state.count,
        formula=str(size.divided(number)),
        together=True,
    )


def weight_state(state: Suspect, weight: Weight, full_bytes: float, ranks: int, ctx: Context) -> Suspect:
    """One tensor of a weight's state, that some ranks share."""
    number = moments(weight, ctx) if state.term == "optimizer" else 1
    shape = " x ".join(str(size) for size in weight.shape)
    values = f"{shape} / {ranks}" if ranks > 1 else shape
    what = state.name.removesuffix("s") if number > 1 else state.name
    return replace(
        state,
        name=f"{weight.name} {what}",
        bytes=max(1, round(full_bytes / ranks / number)),
        count=number * state.count,
        formula=f"{full_bytes / number / whole(weight.numel):.4g} bytes x {values}",
    )


def moments(weight: Weight, ctx: Context) -> int:
    """Moments that the optimizer keeps of a weight: Adam two, Muon one of a projection."""
    return 1 if ctx.recipe.matrix_moment_bytes is not None and kind(weight) == "matrix" else 2


def whole(size: Size) -> int:
    """A size that is a number."""
    assert isinstance(size, int)
    return size


def together(one: Suspect) -> Suspect:
    """All of a tensor that a step keeps, as one."""
    return replace(
        one,
        name=f"{one.count} x {one.name}",
        instant=f"from {one.instant}",
        bytes=one.count * one.bytes,
        formula=f"{one.count} x {one.formula}",
        together=True,
    )


def power(size: Polynomial, name: str) -> int | None:
    """Power of a symbol that every term of a size has; None if they differ."""
    powers = {dict(monomial).get(name, 0) for monomial in size.coefficients}
    return powers.pop() if len(powers) == 1 else None
