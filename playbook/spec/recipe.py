"""Numeric recipes: how many bytes a parameter's weight, gradient and optimizer state take."""

import re
from dataclasses import dataclass, replace
from typing import Any

from playbook.spec.blockwise import NF4, Blockwise, adam_states
from playbook.spec.rules import choice, settle, text, whole

BYTES = ("parameter_bytes", "gradient_bytes", "master_bytes", "moment_bytes", "compute_bytes", "reduce_bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Bytes per parameter of what a training step keeps, and of what it computes and reduces in.

    Parameters
    ----------
    name
        What to call it.
    parameter_bytes, gradient_bytes
        The stored weight and its gradient.
    master_bytes
        A separate FP32 copy of the weight; 0 where there is none.
    moment_bytes
        All moments of the optimizer together (Adam has two).
    compute_bytes
        One value in forward and backward.
    reduce_bytes
        One gradient value in a reduction between ranks.
    source
        Where the numbers come from.
    matrix_moment_bytes
        All moments of a projection of a layer, where they differ from those of other tensors; else None.
    moment_blocks
        How each of two moments is stored in blocks: all but those of small tensors and of embedding tables.
    moment_tables
        Whether the moments of embedding tables are stored in blocks too.
    matrix_copy_bytes
        Copies of a projection's weight that are kept beside it for its products.
    input_bytes
        One value of a projection's input, saved for backward, if it is not of `compute_bytes`.
    workspace_copies
        BF16 copies of the largest projection, gathered whole, that the optimizer works in.
    frozen_blocks
        How frozen projections are stored, where adapters are trained; None is as parameters are.
    adapters
        Whether it is a recipe for adapters.
    """

    name: str
    parameter_bytes: int
    gradient_bytes: int
    master_bytes: int
    moment_bytes: int
    compute_bytes: int
    reduce_bytes: int
    source: str = "given as numbers"
    matrix_moment_bytes: int | None = None
    moment_blocks: Blockwise | None = None
    moment_tables: bool = False
    matrix_copy_bytes: int = 0
    input_bytes: int | None = None
    workspace_copies: int = 0
    frozen_blocks: Blockwise | None = None
    adapters: bool = False

    def __post_init__(self) -> None:
        text("name", self.name)
        for name in BYTES:
            least = 0 if name in ("master_bytes", "moment_bytes") else 1
            settle(self, **{name: whole(name, getattr(self, name), least)})

    @property
    def uniform(self) -> bool:
        """Whether every tensor has the same bytes per parameter."""
        return self.matrix_moment_bytes is None and self.moment_blocks is None and not self.matrix_copy_bytes

    @property
    def state_bytes(self) -> int:
        """Bytes per parameter that stay from step to step, gradient included (16 in mixed precision).

        Where tensors differ, those of one that is neither quantised nor a projection.
        """
        return self.parameter_bytes + self.gradient_bytes + self.optimizer_bytes

    @property
    def optimizer_bytes(self) -> int:
        """Bytes per parameter of optimizer state: the master weight and the moments."""
        return self.master_bytes + self.moment_bytes

    @property
    def compute_dtype(self) -> str:
        """Name of the dtype of forward and backward: "bf16" or "fp32"."""
        return "bf16" if self.compute_bytes == 2 else "fp32"


def _recipe(name: str, numbers: tuple[int, int, int, int, int, int], source: str, **more: Any) -> Recipe:
    return Recipe(name=name, **dict(zip(BYTES, numbers, strict=True)), source=source, **more)


ADAM = "Kingma and Ba, Adam, 2015: two moments"
ZERO = "Rajbhandari et al., ZeRO, 2020, section 3.1: 2 + 2 + 12 bytes"
ADAM8BIT = "Dettmers et al., 8-bit Optimizers, 2022: both moments in 8 bits, a scale a block; tables 32-bit"
ADAM8BIT_BLOCK = 256
MUON = "Jordan et al., Muon, 2024: one momentum for projections of layers; tables, head and vectors by AdamW"
FP8 = "Micikevicius et al., FP8 Formats, 2022; Transformer Engine keeps an FP8 weight and its transpose"
LORA = "Hu et al., LoRA, 2021: BF16 weights frozen, adapters as in mixed precision"
QLORA = "Dettmers et al., QLoRA, 2023: frozen projections in NF4 with double quantisation"
MIXED = (2, 2, 4, 8, 2, 2)
RECIPES = {
    recipe.name: recipe
    for recipe in (
        _recipe("fp32", (4, 4, 0, 8, 4, 4), f"FP32 throughout; {ADAM}"),
        _recipe("bf16-fp32master", MIXED, ZERO),
        _recipe("bf16-fp32grad", (2, 4, 4, 8, 2, 4), "Megatron-LM with FP32 main gradients: 18 bytes"),
        _recipe("fsdp2-mixed", (4, 4, 0, 8, 2, 4), "torch FSDP2, MixedPrecisionPolicy(bf16, reduce fp32)"),
        _recipe("bf16", (2, 2, 0, 4, 2, 2), f"weights, gradients and both moments in BF16; {ADAM}"),
        _recipe("fp32-bf16states", (4, 4, 0, 4, 4, 4), "FP32 weights and gradients, both moments in BF16"),
        _recipe("sgd", (4, 4, 0, 0, 4, 4), "FP32 without momentum: no optimizer state"),
        _recipe("adam8bit", MIXED, ADAM8BIT, moment_blocks=adam_states(ADAM8BIT_BLOCK)),
        _recipe("muon", MIXED, MUON, matrix_moment_bytes=4, workspace_copies=3),
        _recipe("fp8", MIXED, FP8, matrix_copy_bytes=2, input_bytes=1),
        _recipe("lora", MIXED, LORA, adapters=True),
        _recipe("qlora", MIXED, QLORA, adapters=True, frozen_blocks=NF4),
    )
}


PACKED = re.compile(r"adam8bit(-(?P<block>\d+))?(?P<tables>-tables)?")
"""Names of 8-bit Adam's variants."""


def recipe(name: "str | Recipe") -> Recipe:
    """Return a recipe by name, ignoring case.

    `adam8bit-2048` is 8-bit Adam with blocks of 2 048 values, `adam8bit-tables` and `adam8bit-2048-tables`
    quantise the moments of embedding tables too.

    Raises
    ------
    ValueError
        If there is none; the message lists those that there are.

    Examples
    --------
    >>> recipe("bf16-fp32master").state_bytes
    16
    """
    if isinstance(name, Recipe):
        return name
    found = PACKED.fullmatch(name.strip().lower()) if isinstance(name, str) else None
    if found is not None:
        size = whole("block of adam8bit", int(found["block"] or ADAM8BIT_BLOCK))
        blocks, tables = adam_states(size), found["tables"] is not None
        return replace(RECIPES["adam8bit"], name=found[0], moment_blocks=blocks, moment_tables=tables)
    return RECIPES[choice("recipe", name, RECIPES)]
