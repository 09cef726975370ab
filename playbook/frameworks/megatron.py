"""Megatron-LM with Megatron Core and Transformer Engine: fused kernels, FP32 gradients, a padded table.

What its code does (NVIDIA/Megatron-LM, core/tensor_parallel, core/distributed, core/optimizer,
core/models/gpt, training/arguments.py, 2025/26):

- A layer keeps what the papers' accounting counts: norms keep their input (and two floats a token that are
  left out), SwiGLU keeps gate and up, the product down its input. Without a score matrix that is 34·s·b·h
  bytes of a GPT kind, 33.5 of Llama 3 70B (2 + 2 + 2.5 + 2 + 4 + 21).
- Under sequence parallelism a column-split product keeps its shard and gathers it again in backward, into one
  buffer that all gathers share and that stays.
- Gradients of weights are added by the products themselves to a contiguous buffer in FP32 that is there from
  the start (`gradient_accumulation_fusion`, `accumulate_allreduce_grads_in_fp32`); nothing in BF16 stands
  beside it. The distributed optimizer is ZeRO stage 1: gradients and parameters keep their whole buffers.
- The vocabulary is padded to a multiple of 128·tp.
- The loss casts its share of the logits to FP32 and turns that into the softmax in place, then into its
  gradient.
- A stage's output is freed once it is sent (`deallocate_pipeline_outputs`); its input is the first layer's.
- Full recomputation runs the whole layer again.
"""

from dataclasses import replace

from playbook.frameworks import textbook
from playbook.frameworks.parts import passing, passing_back, saved
from playbook.frameworks.passing import with_passing
from playbook.program.block import Block, Tensor
from playbook.program.op import At
from playbook.program.policy import Context, Policy, Sizes
from playbook.spec import Model, Scenario
from playbook.spec.cluster import MIB
from playbook.spec.vocabulary import padded_vocabulary

WIDE = 4
CROSS, CROSS_BACK = "/cross_entropy#0", "/cross_entropy_backward#0"

RECIPES = ("bf16-fp32grad", "bf16-fp32master", "fp32")


def layer(z: Sizes, layer: int = 0) -> Block:
    """One layer: the papers', with what passes between its rows."""
    return with_passing(textbook.layer(z, layer), z, layer)


def head(z: Sizes) -> Block:
    """The last norm, the head, and the vocabulary-parallel cross entropy."""
    block = textbook.head(z)
    numel, product = z.T * z.V, "lm_head/mm#0"
    logits = [
        passing("logits", z.value * numel, product, CROSS, "tp", "logits"),
        replace(saved("softmax", WIDE * numel, CROSS, CROSS, CROSS_BACK, "tp"), term="logits"),
        replace(passing_back("d logits", z.value * numel, CROSS_BACK, "lm_head/mm#1", "tp"), term="logits"),
    ]
    others = [tensor for tensor in block.tensors if "logits" not in (tensor.term, tensor.name.split()[-1])]
    return replace(block, tensors=(*others, *logits))


def finish(blocks: tuple[Block, ...], s: Scenario, ctx: Context) -> tuple[Block, ...]:
    """Add the buffer in which shards of the stream are gathered."""
    if not ctx.sequence_parallel:
        return blocks
    z = Sizes.of(s.model, s.workload, s.recipe, symbolic=ctx.symbolic)
    size = ctx.divide(z.value * z.T * z.h, ctx.cp, "c")
    buffer = Tensor(name="gather buffer", term="communication_buffers", bytes=size, birth=At("S"))
    first, *rest = blocks
    return (replace(first, tensors=(*first.tensors, buffer)), *rest)


def padded(s: Scenario) -> Model:
    """The model with its vocabulary padded to a multiple of 128·tp."""
    return padded_vocabulary(s.model, "megatron", s.layout.tp)


def refuse(s: Scenario) -> None:
    """Refuse what Megatron-LM does not do, by its own rules (training/arguments.py).

    Raises
    ------
    ValueError
        With what would work.
    """
    layout, work, moe = s.layout, s.workload, s.model.moe is not None
    wrong = [
        (
            layout.zero > 1,
            f"zero={layout.zero}: the distributed optimizer shares the optimizer's state",
            "use zero=1",
        ),
        (
            work.recipe not in RECIPES,
            f"recipe={work.recipe!r}",
            f"use one of {', '.join(RECIPES)}",
        ),
        (
            moe and layout.tp > 1 and not layout.sequence_parallel,
            f"experts with tp={layout.tp} and no sequence parallelism",
            "use sequence_parallel=True, or tp=1",
        ),
    ]
    for given, what, works in wrong:
        if given:
            raise ValueError(f"{what}; framework 'megatron' does not do that; {works}")


POLICY = Policy(
    name="megatron",
    embedding=textbook.embedding,
    layer=layer,
    head=head,
    gradients_resident=True,
    stops_early=False,
    saves_gathered=False,
    vocabulary_parallel=True,
    pads_rows=False,
    keeps_boundaries=False,
    workspace_bytes=64 * MIB,
    refuse=refuse,
    model_of=padded,
    finish=finish,
)
