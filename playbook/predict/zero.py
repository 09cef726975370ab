"""Model state per rank under each ZeRO stage: which part every rank copies, which part it shares."""

from dataclasses import dataclass

from playbook.frameworks.textbook import POLICY
from playbook.program.block import Block, Weight
from playbook.program.policy import Context
from playbook.spec import Lora, Model, Recipe
from playbook.spec.adapters import adapters
from playbook.spec.recipe import recipe as recipe_of
from playbook.spec.rules import whole
from playbook.spec.workload import DEFAULT_LORA
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


def zero_states(
    model: Model | int, recipe: str | Recipe, ranks: int, lora: Lora | None = None
) -> tuple[ZeroState, ...]:
    """Return the papers' model state of one rank under ZeRO stages 0 to 3.

    Parameters
    ----------
    model
        A model, or a number of parameters Ψ, which count as those of norms do where a recipe tells tensors
        apart.
    recipe
        Bytes per parameter.
    ranks
        Data-parallel ranks N.
    lora
        Adapters that are trained instead of the weights; a recipe for adapters has some by default.

    Notes
    -----
    For 2 + 2 + 12 bytes a parameter: 16Ψ, 4Ψ + 12Ψ/N, 2Ψ + 14Ψ/N, 16Ψ/N (Rajbhandari et al., ZeRO, 2020).
    Read off the program: the strategies' own passes over a block of Ψ parameters.

    Examples
    --------
    >>> [round(state.total_bytes / 1e9, 1) for state in zero_states(70_000_000_000, "bf16-fp32master", 64)]
    [1120.0, 293.1, 155.3, 17.5]
    """
    found = recipe_of(recipe)
    whole("ranks", ranks)
    trained = lora or (DEFAULT_LORA if found.adapters else None)
    if isinstance(model, Model) and (trained or not found.uniform):
        weights = each_weight(model, trained)
    else:
        psi = whole("parameters", model.parameters if isinstance(model, Model) else model)
        weights = (Weight(name="all", shape=(psi,)),)
    return tuple(state_of(zero, weights, found, ranks) for zero in range(4))


def each_weight(model: Model, lora: Lora | None) -> tuple[Weight, ...]:
    """Every weight of a model, frozen beside its adapters where there are some."""
    layers = (parameter for layer in range(model.layers) for parameter in model.block_parameters(layer))
    parameters = (*model.embedding_parameters(), *layers, *model.head_parameters())
    weights = tuple(Weight(name=p.name, shape=p.shape, frozen=lora is not None) for p in parameters)
    if lora is None:
        return weights
    added = (
        Weight(name=f"{row['module']}.lora.weight", shape=(row["count"], row["parameters"] // row["count"]))
        for row in adapters(model, lora).rows
    )
    return (*weights, *added)


def state_of(zero: int, weights: tuple[Weight, ...], recipe: Recipe, ranks: int) -> ZeroState:
    """State under one stage: what its pass over a block of the weights leaves."""
    held, alone = (held_by(zero, weights, recipe, count) for count in (ranks, 1))
    copied = {term: size for term, size in held.items() if size == alone[term]}
    shared = {term: size for term, size in held.items() if term not in copied}
    return ZeroState(zero=zero, copied=copied, shared=shared)


def held_by(zero: int, weights: tuple[Weight, ...], recipe: Recipe, ranks: int) -> dict[str, int]:
    """Bytes by term of a rank's state under one stage."""
    block = Block(name="layer", layered=True, weights=weights)
    (after,) = plan(STAGES[zero]).rewrite((block,), Context(policy=POLICY, recipe=recipe, dp=ranks))
    held = {tensor.term: tensor.bytes for tensor in after.tensors if tensor.birth.segment == "S"}
    return {term: size for term, size in held.items() if isinstance(size, int)}
