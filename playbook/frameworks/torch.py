"""PyTorch's own: the reference transformer in eager mode under DDP, FSDP2, DTensor and torch's pipelining.

Every row is an aten operation that the code really runs, so ids join with traced and measured steps one by
one. What is saved is what autograd saves.

PyTorch ships no optimizer with master weights. Recipe bf16-fp32master is the rows of bf16, stepped by
`playbook.models.master_adamw`: FP32 masters and moments of what a rank updates (everything under DDP, its
shards under FSDP2 and tensor parallelism), and the FP32 gradient of one parameter at a time.
"""

from playbook.frameworks.aten_ends import embedding, head
from playbook.frameworks.aten_layer import layer
from playbook.frameworks.torch_pipeline import as_library
from playbook.program.policy import Policy
from playbook.spec import Scenario

BUCKET_BYTES = (2**20, 25 * 2**20)
"""DDP's default bucket sizes, the first and the others."""

CUBLAS_WORKSPACE_BYTES = 2 * 32 * 2**20
"""cuBLAS takes 32 MiB on an H100 or H200 for the thread of forward and as much for that of backward."""

SHARDS_ALL = 3
"""ZeRO stage that shares parameters too."""

MIXED = "fsdp2-mixed"
RECIPES = ("bf16-fp32master", "fp32", "bf16", MIXED, "sgd")
"""What torch's own optimizers do, and `MasterAdamW` of this library for BF16 weights."""


def refuse(s: Scenario, name: str = "torch", recipes: tuple[str, ...] = RECIPES) -> None:
    """Refuse what PyTorch, or the reference transformer, does not do.

    Parameters
    ----------
    s
        The scenario.
    name, recipes
        The framework that was asked for, and its recipes: others train the same model.

    Raises
    ------
    ValueError
        With what would work.
    """
    model, workload, layout = s.model, s.workload, s.layout
    if layout.zero == 2:
        raise ValueError(
            "zero=2: PyTorch shares gradients only together with parameters; use zero=3 with reshard=False "
            "(--zero 3 --no-reshard), which keeps them gathered between forward and backward"
        )
    if layout.dp_replicate > 1 and layout.zero < SHARDS_ALL:
        raise ValueError(
            f"dp_replicate={layout.dp_replicate} with zero={layout.zero}: framework={name!r} has replicas of "
            "shards in FSDP2 only; use zero=3, or dp_replicate=1"
        )
    if model.unlike_llama:
        raise ValueError(
            f"model {model.name!r} has {', '.join(model.unlike_llama)}, which framework={name!r} does not "
            "run here; use a dense kind of Llama, Mistral or Qwen"
        )
    if workload.recipe not in recipes:
        raise ValueError(
            f"recipe={workload.recipe!r}: no optimizer of framework={name!r} that runs here keeps FP32 "
            f"gradients of BF16 weights or states of a narrower dtype; use one of {', '.join(recipes)} "
            "(fsdp2-mixed: zero=3)"
        )
    if workload.recipe == MIXED and layout.zero != SHARDS_ALL:
        whole = " or ".join(repr(one) for one in recipes if one in ("fp32", "bf16"))
        raise ValueError(
            f"recipe={MIXED!r} with zero={layout.zero}: in framework={name!r} it is FSDP2's mixed precision; "
            f"use zero=3, or recipe={whole}"
        )


POLICY = Policy(
    name="torch",
    embedding=embedding,
    layer=layer,
    head=head,
    vocabulary_parallel=True,
    dtensor=True,
    bucket_bytes=BUCKET_BYTES,
    leaves_to_weights=True,
    broadcasts=True,
    reduces_after=True,
    widens_gradients=True,
    workspace_bytes=CUBLAS_WORKSPACE_BYTES,
    finish=as_library,
    refuse=refuse,
)
