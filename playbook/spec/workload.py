"""What is trained on: sequences, batches, numeric recipe, and which tensors the step keeps."""

from dataclasses import dataclass

from playbook.spec.recipe import recipe
from playbook.spec.rules import choice, settle, text, whole

CHOICES = {
    "recompute": ("none", "selective", "full"),
    "attention": ("flash", "math"),
    "loss": ("eager", "chunked", "parallel"),
    "optimizer_kernel": ("fused", "foreach", "for-loop"),
    "offload": ("none", "cpu", "nvme"),
    "offload_parts": ("optimizer", "gradients", "all"),
    "kernels": ("cuda", "cpu"),
    "gradient_sync": ("every", "last"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Lora:
    """Low-rank adapters: their rank and the projections that get them (Hu et al., LoRA, 2021).

    Parameters
    ----------
    rank
        Inner features of an adapter: it has rank · (inputs + outputs) parameters.
    targets
        Last parts of the names of the projections.
    tables
        Dtype of frozen tables, head and norms under recipe qlora, which quantises projections only: "bf16",
        or "fp32" as `prepare_model_for_kbit_training` of PEFT casts them.
    """

    rank: int
    targets: tuple[str, ...] = ("q_proj", "v_proj")
    tables: str = "bf16"

    def __post_init__(self) -> None:
        settle(self, rank=whole("lora rank", self.rank), targets=tuple(self.targets))
        for target in self.targets:
            text("lora target", target)
        if not self.targets:
            raise ValueError("lora targets are empty; name at least one projection, such as q_proj")
        settle(self, tables=choice("lora tables", self.tables, ("bf16", "fp32")))


DEFAULT_LORA = Lora(rank=16)
"""Adapters of a workload whose recipe trains some and that names none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One optimizer step's work.

    Parameters
    ----------
    sequence
        Tokens a sequence.
    micro_batch
        Sequences per replica and forward.
    global_batch
        Sequences per optimizer step over all replicas; None is dp · micro_batch · pp.
    recipe
        Name of the numeric recipe.
    recompute
        What backward computes again: "none", "selective" (the attention core) or "full" (the whole layer).
    attention
        "flash" keeps no score matrix, "math" does.
    loss
        "eager" holds the whole logits, "chunked" some rows at a time, "parallel" a vocabulary shard.
    loss_chunk
        Rows (tokens) of logits that a chunked loss holds at a time.
    optimizer_kernel
        How the optimizer walks the parameters: "fused", "foreach" or "for-loop".
    offload
        Where state is kept: "none" (on the device), "cpu" or "nvme".
    offload_parts
        What is kept there: the "optimizer" (moments and master weights), also the "gradients", or "all" with
        the parameters.
    lora
        Adapters to train instead of the weights, or None; recipes lora and qlora have rank 16 by default.
    kernels
        Which kernels save tensors for backward: "cuda" or "cpu".
    gradient_sync
        Reduce gradients after "every" micro-batch or after the "last".
    """

    sequence: int = 4096
    micro_batch: int = 1
    global_batch: int | None = None
    recipe: str = "bf16-fp32master"
    recompute: str = "none"
    attention: str = "flash"
    loss: str = "eager"
    loss_chunk: int = 1024
    optimizer_kernel: str = "fused"
    offload: str = "none"
    offload_parts: str = "optimizer"
    lora: Lora | None = None
    kernels: str = "cuda"
    gradient_sync: str = "every"

    def __post_init__(self) -> None:
        for name in ("sequence", "micro_batch", "loss_chunk"):
            settle(self, **{name: whole(name, getattr(self, name))})
        if self.global_batch is not None:
            settle(self, global_batch=whole("global_batch", self.global_batch))
        settle(self, recipe=recipe(self.recipe).name)
        for name, valid in CHOICES.items():
            settle(self, **{name: choice(name, getattr(self, name), valid)})
        if self.lora is not None and not isinstance(self.lora, Lora):
            raise TypeError(f"lora={self.lora!r} must be a Lora(rank=..., targets=...) or None")
        if self.lora is None and recipe(self.recipe).adapters:
            settle(self, lora=DEFAULT_LORA)
