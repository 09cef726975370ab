"""PyTorch's own: the reference transformer in eager mode under DDP, FSDP2, DTensor and torch's pipelining.

Every row is an aten operation that the code really runs, so ids join with traced and measured steps one by
one. What is saved is what autograd saves.
"""

from playbook.frameworks.aten_ends import embedding, head
from playbook.frameworks.aten_layer import layer
from playbook.program.policy import Policy
from playbook.spec import Scenario

BUCKET_BYTES = (2**20, 25 * 2**20)
"""DDP's default bucket sizes, the first and the others."""

CUBLAS_WORKSPACE_BYTES = 2 * 32 * 2**20
"""cuBLAS takes 32 MiB on an H100 or H200 for the thread of forward and as much for that of backward."""

RECIPES = ("fp32", "bf16", "fsdp2-mixed", "sgd")
"""What torch's optimizers do by themselves: they keep no separate master weights."""


def refuse(s: Scenario) -> None:
    """Refuse what PyTorch, or the reference transformer, does not do.

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
    if model.norm != "rms" or model.positions or not model.gated:
        raise ValueError(
            f"model {model.name!r} is not of a kind that framework='torch' runs here (RMS norm, rotary "
            "positions, gated feed-forward); use a Llama, Mistral or Qwen kind, or framework='textbook'"
        )
    if workload.recipe not in RECIPES:
        raise ValueError(
            f"recipe={workload.recipe!r}: torch's own optimizers keep no master weights and no states of "
            f"another dtype; use one of {', '.join(RECIPES)} (fsdp2-mixed: zero=3), or "
            "framework='textbook'"
        )
    if workload.recipe == "fsdp2-mixed" and layout.zero != 3:
        raise ValueError(
            f"recipe='fsdp2-mixed' with zero={layout.zero}: it is FSDP2's mixed precision; use zero=3, or "
            "recipe='fp32' or 'bf16'"
        )
    if workload.attention != "flash" or workload.recompute == "selective":
        raise ValueError(
            f"attention={workload.attention!r}, recompute={workload.recompute!r}: not built yet for "
            "framework='torch'; use attention='flash' and recompute='none' or 'full', or framework='textbook'"
        )


POLICY = Policy(
    name="torch",
    embedding=embedding,
    layer=layer,
    head=head,
    vocabulary_parallel=True,
    dtensor=True,
    bucket_bytes=BUCKET_BYTES,
    broadcasts=True,
    workspace_bytes=CUBLAS_WORKSPACE_BYTES,
    refuse=refuse,
)
