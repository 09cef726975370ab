"""Bytes of the state of one weight: its recipe may store tensor classes differently, or freeze some."""

from playbook.program.block import Weight
from playbook.program.op import Size
from playbook.program.policy import Context
from playbook.program.polynomial import Polynomial, constant
from playbook.spec.blockwise import Blockwise
from playbook.spec.tensor_class import TensorClass, class_of

USUAL = {"V": 128256, "f": 14336, "h": 4096, "a": 32, "g": 8, "k": 128, "N": 1, "t": 1}
USUAL |= {"E": 64, "K": 6, "e": 1408, "w": 2816, "rq": 1536, "rkv": 512, "dn": 128, "dr": 64, "dv": 128}
USUAL |= {"Ne": 1, "c": 1, "ep": 1, "etp": 1}
"""Sizes that tell symbols apart: those of Llama 3.1 8B, and of DeepSeek-V2 for what Llama has not."""


def kind(weight: Weight) -> TensorClass:
    """The class of a weight."""
    return class_of(weight.name, len(weight.shape))


def number(size: Size) -> int:
    """A size as a number; a symbolic one at the usual sizes."""
    return int(constant(size).at(USUAL)) if isinstance(size, Polynomial) else size


def trainable(weights: tuple[Weight, ...]) -> tuple[Weight, ...]:
    """Weights that get a gradient."""
    return tuple(weight for weight in weights if not weight.frozen)


def alike(weights: tuple[Weight, ...], ctx: Context) -> bool:
    """Whether all weights have the recipe's plain bytes per parameter."""
    return ctx.recipe.uniform and len(trainable(weights)) == len(weights)


def weight_bytes(weight: Weight, held: Size, term: str, ctx: Context) -> Size:
    """Bytes of one term of a weight's state.

    Parameters
    ----------
    weight
        The whole weight, after the tensor pass.
    held
        Elements of it that this rank holds.
    term
        "parameters", "gradients", "master_weights" or "optimizer".
    """
    recipe = ctx.recipe
    if weight.frozen:
        return frozen_bytes(weight, held, ctx) if term == "parameters" else 0
    if term == "optimizer":
        return moment_bytes(weight, held, ctx)
    if term == "parameters":
        copies = recipe.matrix_copy_bytes if kind(weight) == "matrix" else 0
        return (recipe.parameter_bytes + copies) * held
    each = {"gradients": recipe.gradient_bytes, "master_weights": recipe.master_bytes}
    return each[term] * held


def moment_bytes(weight: Weight, held: Size, ctx: Context) -> Size:
    """Bytes of the optimizer's moments, without master weights."""
    recipe, blocks = ctx.recipe, ctx.recipe.moment_blocks
    if recipe.matrix_moment_bytes is not None and kind(weight) == "matrix":
        return recipe.matrix_moment_bytes * held
    fits = recipe.moment_tables or kind(weight) != "table"
    if blocks is not None and fits and number(weight.numel) >= blocks.least:
        return 2 * packed(blocks, held)
    return recipe.moment_bytes * held


def frozen_bytes(weight: Weight, held: Size, ctx: Context) -> Size:
    """Bytes of a weight that is not trained."""
    blocks = ctx.recipe.frozen_blocks
    if blocks is None:
        return ctx.recipe.parameter_bytes * held
    return packed(blocks, held) if kind(weight) == "matrix" else ctx.frozen_table_bytes * held


def packed(blocks: Blockwise, held: Size) -> Size:
    """Bytes of elements stored in blocks; of symbols the average."""
    if isinstance(held, Polynomial):
        return held * blocks.bytes_each  # type: ignore[operator]  # Polynomial takes fractions
    return blocks.bytes_of(held)
