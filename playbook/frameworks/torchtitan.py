"""torchtitan: torch's own parallelisms, with FSDP2, checkpointing op by op and a loss on split logits.

What differs from `torch` (pytorch/torchtitan, parallelize_llama.py, later models/llama3/infra/parallelize.py;
2024-12 to 2025-06):

- Data parallelism is FSDP2 with BF16 weights gathered and gradients reduced in FP32 (recipe fsdp2-mixed), dp
  and cp together one group of shards. Blocks are gathered one by one, embedding, last norm and head as one.
- Selective checkpointing "op" keeps a layer's input, attention's output with its log-sum-exps, and the output
  of every second matrix product: those of q, v, gate and down of the seven; the rest runs again.
- Under tensor parallelism the loss works on the rank's share of the logits (`loss_parallel`, on by default).
- What the allocator holds beyond its peak is mostly other streams': a stream's blocks are not handed to
  another, so reduced gradients and gathered flat buffers keep their room after they are freed (FSDP2 makes
  them on its reduce-scatter and its copy-in stream).
- Pipeline schedules are those of torch.distributed.pipelining.

Not counted: `torch.compile` (it fuses norms and, from 2025 on, the loss; the published effect on Llama 3.1 8B
is −5.4 of 82.4 GiB), FP8 products (another −0.2), and that the last block is not freed between forward and
backward.
"""

from dataclasses import replace

from playbook.frameworks import aten_ends, torch
from playbook.frameworks.torch import POLICY as TORCH
from playbook.program.block import Block
from playbook.program.policy import Sizes
from playbook.spec import Scenario

KEPT = frozenset(("q plain", "v", "o", "log-sum-exp", "gate", "fed"))
"""Attention's output with its log-sum-exps, and the outputs of products one, three, five and seven."""

RECIPES = ("fsdp2-mixed", "fp32")


def head(z: Sizes) -> Block:
    """The last norm, the head, and a loss on each rank's share of the logits."""
    block = aten_ends.head(z)
    tensors = (replace(t, region="tp") if t.term == "logits" else t for t in block.tensors)
    junctions = tuple(junction for junction in block.junctions if not junction.gathers)
    return replace(block, tensors=tuple(tensors), junctions=junctions)


def refuse(s: Scenario) -> None:
    """Refuse what torchtitan does not do, or this accounting does not know.

    Raises
    ------
    ValueError
        With what would work.
    """
    layout = s.layout
    wrong = [
        (
            layout.zero in (1, 2),
            f"zero={layout.zero}",
            "use zero=3, or zero=3 with reshard=False, which keeps gathered weights until backward",
        ),
        (
            s.workload.recipe not in RECIPES,
            f"recipe={s.workload.recipe!r}",
            f"use recipe={RECIPES[0]!r} with zero=3, or recipe={RECIPES[1]!r}",
        ),
    ]
    for given, what, works in wrong:
        if given:
            raise ValueError(f"{what}: framework 'torchtitan' does not do that; {works}")
    torch.refuse(s, "torchtitan", RECIPES)


POLICY = replace(
    TORCH,
    name="torchtitan",
    head=head,
    selective_keeps=KEPT,
    reserved_share=(0.02, 0.25),
    refuse=refuse,
)
