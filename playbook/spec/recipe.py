"""Numeric recipes: how many bytes a parameter's weight, gradient and optimizer state take."""

from dataclasses import dataclass

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
    """

    name: str
    parameter_bytes: int
    gradient_bytes: int
    master_bytes: int
    moment_bytes: int
    compute_bytes: int
    reduce_bytes: int
    source: str = "given as numbers"

    def __post_init__(self) -> None:
        text("name", self.name)
        for name in BYTES:
            least = 0 if name in ("master_bytes", "moment_bytes") else 1
            settle(self, **{name: whole(name, getattr(self, name), least)})

    @property
    def state_bytes(self) -> int:
        """Bytes per parameter that stay from step to step, gradient included (16 in mixed precision)."""
        return self.parameter_bytes + self.gradient_bytes + self.optimizer_bytes

    @property
    def optimizer_bytes(self) -> int:
        """Bytes per parameter of optimizer state: the master weight and the moments."""
        return self.master_bytes + self.moment_bytes

    @property
    def compute_dtype(self) -> str:
        """Name of the dtype of forward and backward: "bf16" or "fp32"."""
        return "bf16" if self.compute_bytes == 2 else "fp32"


def _recipe(name: str, numbers: tuple[int, int, int, int, int, int], source: str) -> Recipe:
    return Recipe(name=name, **dict(zip(BYTES, numbers, strict=True)), source=source)


ADAM = "Kingma and Ba, Adam, 2015: two moments"
ZERO = "Rajbhandari et al., ZeRO, 2020, section 3.1: 2 + 2 + 12 bytes"
RECIPES = {
    recipe.name: recipe
    for recipe in (
        _recipe("fp32", (4, 4, 0, 8, 4, 4), f"FP32 throughout; {ADAM}"),
        _recipe("bf16-fp32master", (2, 2, 4, 8, 2, 2), ZERO),
        _recipe("bf16-fp32grad", (2, 4, 4, 8, 2, 4), "Megatron-LM with FP32 main gradients: 18 bytes"),
        _recipe("fsdp2-mixed", (4, 4, 0, 8, 2, 4), "torch FSDP2, MixedPrecisionPolicy(bf16, reduce fp32)"),
        _recipe("bf16", (2, 2, 0, 4, 2, 2), f"weights, gradients and both moments in BF16; {ADAM}"),
        _recipe("fp32-bf16states", (4, 4, 0, 4, 4, 4), "FP32 weights and gradients, both moments in BF16"),
        _recipe("sgd", (4, 4, 0, 0, 4, 4), "FP32 without momentum: no optimizer state"),
    )
}
NOT_BUILT = ("adam8bit", "muon", "fp8", "lora", "qlora")


def recipe(name: "str | Recipe") -> Recipe:
    """Return a recipe by name, ignoring case.

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
    if isinstance(name, str) and name.strip().lower() in NOT_BUILT:
        raise ValueError(f"recipe={name!r} is not built yet; use one of {', '.join(RECIPES)}")
    return RECIPES[choice("recipe", name, RECIPES)]
