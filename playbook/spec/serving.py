"""What is served: prompt and output lengths, concurrency, and the dtypes of weights and cache."""

from dataclasses import dataclass

from playbook.spec.rules import choice, settle, whole

VALUE_BYTES = {"fp32": 4.0, "fp16": 2.0, "bf16": 2.0, "fp8": 1.0, "int8": 1.0, "int4": 0.5}


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """A serving load.

    Parameters
    ----------
    prompt, output
        Tokens of a prompt and of its answer.
    concurrency
        Sequences in the engine at once.
    kv_dtype, weights
        Dtypes of the key-value cache and of the resident weights: names in `VALUE_BYTES`.
    """

    prompt: int = 4096
    output: int = 512
    concurrency: int = 64
    kv_dtype: str = "bf16"
    weights: str = "bf16"

    def __post_init__(self) -> None:
        for name in ("prompt", "output", "concurrency"):
            settle(self, **{name: whole(name, getattr(self, name))})
        for name in ("kv_dtype", "weights"):
            settle(self, **{name: choice(name, getattr(self, name), VALUE_BYTES)})

    @property
    def sequence(self) -> int:
        """Tokens of one sequence at its end: prompt and output."""
        return self.prompt + self.output

    @property
    def kv_bytes_per_value(self) -> float:
        """Bytes of one cached value."""
        return VALUE_BYTES[self.kv_dtype]

    @property
    def weight_bytes_per_value(self) -> float:
        """Bytes of one weight, without the scales of a quantised one."""
        return VALUE_BYTES[self.weights]
