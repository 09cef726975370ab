"""Model state per rank under each ZeRO stage: which part every rank copies, which part it shares."""

from dataclasses import dataclass

from playbook.frameworks.textbook import POLICY
from playbook.program.block import Block, Weight
from playbook.program.policy import Context
from playbook.spec import Model, Recipe
from playbook.spec.recipe import recipe as recipe_of
from playbook.spec.rules import whole
from playbook.strategies import plan

STAGES = ("ddp", "zero1", "zero2", "fsdp2")


@dataclass(frozen=True, slots=True, kw_only=True)
class ZeroState:
    """State of one rank.

    Parameters
    ----------
    zero
        The stage, 0 to 3.
    copied
        Bytes by term that every rank holds whole.
    shared
        Bytes by term of this rank's share.
    """

    zero: int
    copied: dict[str, int]
    shared: dict[str, int]

    @property
    def total_bytes(self) -> int:
        """Bytes in all."""
        return sum(self.copied.values()) + sum(self.shared.values())


def zero_states(model: Model | int, recipe: str | Recipe, ranks: int) -> tuple[ZeroState, ...]:
    """Return the papers' model state of one rank under ZeRO stages 0 to 3.

    Parameters
    ----------
    model
        A model, or a number of parameters Ψ.
    recipe
        Bytes per parameter.
    ranks
        Data-parallel ranks N.

    Notes
    -----
    For 2 + 2 + 12 bytes a parameter: 16Ψ, 4Ψ + 12Ψ/N, 2Ψ + 14Ψ/N, 16Ψ/N (Rajbhandari et al., ZeRO, 2020).
    Read off the program: the strategies' own passes over a block of Ψ parameters.

    Examples
    --------
    >>> [round(state.total_bytes / 1e9, 1) for state in zero_states(70_000_000_000, "bf16-fp32master", 64)]
    [1120.0, 293.1, 155.3, 17.5]
    """
    psi = whole("parameters", model.parameters if isinstance(model, Model) else model)
    return tuple(state_of(zero, psi, recipe_of(recipe), whole("ranks", ranks)) for zero in range(4))


def state_of(zero: int, psi: int, recipe: Recipe, ranks: int) -> ZeroState:
    """State under one stage: what its pass over a block of so many parameters leaves."""
    block = Block(name="layer", layered=True, weights=(Weight(name="all", shape=(psi,)),))
    ctx = Context(policy=POLICY, recipe=recipe, dp=ranks)
    (after,) = plan(STAGES[zero]).rewrite((block,), ctx)
    whole_bytes = {
        "parameters": recipe.parameter_bytes * psi,
        "gradients": recipe.gradient_bytes * psi,
        "optimizer": recipe.moment_bytes * psi,
        "master_weights": recipe.master_bytes * psi,
    }
    held = {tensor.term: tensor.bytes for tensor in after.tensors if tensor.birth.segment == "S"}
    numbers = {term: size for term, size in held.items() if isinstance(size, int)}
    copied = {term: size for term, size in numbers.items() if size == whole_bytes[term]}
    shared = {term: size for term, size in numbers.items() if term not in copied}
    return ZeroState(zero=zero, copied=copied, shared=shared)
