"""nanotron: a Llama kind with a merged SwiGLU, pipelined by cost, gradients added up in FP32.

What its code does, read in huggingface/nanotron (models/llama.py, models/base.py, optim/zero.py,
optim/gradient_accumulator.py, parallel/tensor_parallel/functional.py, distributed.py; winter 2024/25):

- A layer keeps the residual stream before each norm (fused norm, Triton), each norm's output, the merged
  queries, keys and values, a second copy of keys and values that rotary positions work on, attention's
  output and log-sum-exps, the merged gate and up, SiLU's output, and the product: with as many key-value
  heads as heads, 8·h (over t with sequence parallelism) + 12·h/t + 8·f/t bytes a token.
- Tensor parallelism is `REDUCE_SCATTER`, asynchronous: a column-split product saves its shard and gathers it
  again in backward (`tp_recompute_allgather`, the default), through two buffers that stay for good.
- Gradients: BF16 until a micro-batch's backward is over, then added to one FP32 buffer that stays. Several
  data-parallel ranks go through DDP, whose buckets hold the BF16 gradients once more; with ZeRO they do not
  (trainer.py, `make_ddp`) and are reduced where they lie.
- ZeRO is stage 1: FP32 weights and both moments shared out parameter by parameter. Updated weights are
  gathered as flat copies: this rank's share, one piece a rank, and NCCL's whole.
- Logits in BF16, cast to FP32; the sharded cross entropy subtracts the maximum into new memory, takes the
  exponential in place, and keeps it.
- Stages: layers go to the stage in which their cumulative cost begins, 4·a·k·h + 3·f·h a layer and V·h for
  the head, so that stages are uneven, and the last ones may hold no layer at all.
- The vocabulary is padded to a multiple of tp (`make_vocab_size_divisible_by` is 1 by default).
"""

from dataclasses import replace

from playbook.frameworks import textbook
from playbook.frameworks.parts import passing, passing_back, saved
from playbook.frameworks.passing import with_passing
from playbook.frameworks.textbook_attention import CORE, CORE_BACK
from playbook.program.block import Block, Tensor
from playbook.program.op import END, FIRST, OPTIMIZER, At
from playbook.program.policy import Context, Policy, Sizes
from playbook.spec import Model, Scenario
from playbook.spec.cluster import MIB
from playbook.spec.vocabulary import padded_vocabulary

WIDE = 4
CROSS, CROSS_BACK = "/cross_entropy#0", "/cross_entropy_backward#0"
RECIPE = "bf16-fp32grad"

RESERVED = (0.0, 0.42)
"""What published runs held over the peak predicted here: of 1205, 3 % less and 11 % more. At the upper end
the host is far ahead of the device (benchmarks/results/memory_ultrascale.json)."""


def layer(z: Sizes, layer: int = 0) -> Block:
    """One layer: the papers', with SiLU's output and the copy of keys and values."""
    block = textbook.layer(z, layer)
    wide, act = z.value * z.T * z.f, "mlp/act#0"
    kept = [saved("silu", wide, act, act, "mlp/act_backward#0", "tp")]
    if merged(z):
        copies = 2 * z.value * z.T * z.g * z.k
        kept.append(saved("keys and values before", copies, "self_attn.v_proj/mm#0", CORE, CORE_BACK, "kv"))
    return with_passing(replace(block, tensors=(*block.tensors, *kept)), z, layer)


def merged(z: Sizes) -> bool:
    """Whether queries, keys and values stay in one tensor, which lives as long as the queries do."""
    model = z.model
    return model.heads == model.kv_heads if isinstance(model, Model) else not model.grouped


def head(z: Sizes) -> Block:
    """The last norm, the head, and the sharded cross entropy."""
    block = textbook.head(z)
    numel, product = z.T * z.V, "lm_head/mm#0"
    logits = [
        passing("logits", z.value * numel, product, product, "tp", "logits"),
        passing("wide logits", WIDE * numel, product, CROSS, "tp", "logits"),
        replace(saved("softmax", WIDE * numel, CROSS, CROSS, CROSS_BACK, "tp"), term="logits"),
        replace(passing_back("d logits", z.value * numel, CROSS_BACK, "lm_head/mm#1", "tp"), term="logits"),
    ]
    others = [tensor for tensor in block.tensors if "logits" not in (tensor.term, tensor.name.split()[-1])]
    return replace(block, tensors=(*others, *logits))


def finish(blocks: tuple[Block, ...], s: Scenario, ctx: Context) -> tuple[Block, ...]:
    """Add BF16 gradients, DDP's buckets or ZeRO's flat copies, and the buffers of gathered shards."""
    done: dict[int, Block] = {}
    for block in blocks:
        if id(block) not in done:
            shared = gathered(block, ctx) if s.layout.zero else buckets(block, ctx)
            held = (*half_gradients(block, ctx), *shared)
            done[id(block)] = replace(block, tensors=(*block.tensors, *held))
    first, *rest = (done[id(block)] for block in blocks)
    return (replace(first, tensors=(*first.tensors, *gather_buffers(s, ctx))), *rest)


def half_gradients(block: Block, ctx: Context) -> list[Tensor]:
    """Gradients in the dtype of computation, until the micro-batch's backward is over."""
    return [
        Tensor(
            name=f"{weight.name} half gradient",
            term="gradients",
            bytes=ctx.recipe.compute_bytes * weight.numel,
            birth=weight.born or weight.ready,
            bwd_end=At("B", END, FIRST),
        )
        for weight in block.weights
    ]


def buckets(block: Block, ctx: Context) -> list[Tensor]:
    """DDP's buckets."""
    if ctx.shard == 1 or not block.weights:
        return []
    size = ctx.recipe.compute_bytes * block.numel
    return [Tensor(name="buckets", term="communication_buffers", bytes=size, birth=At("S"))]


def gathered(block: Block, ctx: Context) -> list[Tensor]:
    """Updated weights of ZeRO 1 on their way: this rank's share, a piece from each rank, and the whole.

    Formulas in symbols leave the share out.
    """
    if ctx.shard == 1 or not block.weights:
        return []
    whole = ctx.recipe.parameter_bytes * block.numel
    own = whole // ctx.shard if isinstance(whole, int) else 0
    return [
        Tensor(
            name="gathered weights",
            term="communication_buffers",
            bytes=2 * whole + own,
            birth=OPTIMIZER,
            fwd_end=OPTIMIZER,
        )
    ]


def gather_buffers(s: Scenario, ctx: Context) -> list[Tensor]:
    """Two tensors of the whole stream that gathers of forward and backward share."""
    if not ctx.sequence_parallel:
        return []
    z = Sizes.of(s.model, s.workload, s.recipe, symbolic=ctx.symbolic)
    size = 2 * z.value * z.T * z.h
    return [Tensor(name="gather buffers", term="communication_buffers", bytes=size, birth=At("S"))]


def padded(s: Scenario) -> Model:
    """The model with its vocabulary padded to a multiple of tp."""
    return padded_vocabulary(s.model, "nanotron", s.layout.tp)


def stage_layers(model: Model, pp: int) -> tuple[int, ...]:
    """Layers of each stage: one goes to the stage in whose share of the whole cost it begins; some may be 0.

    Examples
    --------
    >>> from playbook.spec import model
    >>> stage_layers(model("llama-3.1-8b"), 4)
    (9, 9, 8, 6)
    """
    each = 4 * model.heads * model.head_dim * model.hidden + 3 * model.ffn * model.hidden
    whole = each * model.layers + model.vocabulary * model.hidden
    counts, stage = [0] * pp, 0
    for number in range(1, model.layers + 1):
        counts[stage] += 1
        stage += each * number * pp > whole * (stage + 1)
    return tuple(counts)


def refuse(s: Scenario) -> None:
    """Refuse what nanotron does not do, or this accounting does not know."""
    model, layout, work = s.model, s.layout, s.workload
    dense = model.gated and model.norm == "rms" and model.mla is None and model.moe is None
    wrong = [
        (
            not dense,
            f"model {model.name}",
            "use a dense Llama, Mistral or Qwen kind",
        ),
        (layout.zero > 1, f"zero={layout.zero}", "use zero=0 or 1"),
        (layout.cp > 1, f"cp={layout.cp}", "use cp=1"),
        (
            layout.schedule not in ("1f1b", "gpipe"),
            f"schedule={layout.schedule!r}",
            "use schedule='1f1b' or 'gpipe' (all forward, all backward)",
        ),
        (
            s.microbatches < layout.pp - 1,
            f"{s.microbatches} micro-batches with pp={layout.pp}",
            f"use at least pp - 1 = {layout.pp - 1} micro-batches",
        ),
        (
            model.kv_heads % layout.tp > 0,
            f"tp={layout.tp} with kv_heads={model.kv_heads}",
            "use a tp that divides them, since no head is copied",
        ),
        (work.recipe != RECIPE, f"recipe={work.recipe!r}", f"use recipe={RECIPE!r}"),
        (work.attention != "flash", f"attention={work.attention!r}", "use attention='flash'"),
        (work.recompute == "selective", "recompute='selective'", "use recompute='none' or 'full'"),
    ]
    for given, what, works in wrong:
        if given:
            raise ValueError(f"{what}: framework 'nanotron' does not do that here; {works}")


POLICY = Policy(
    name="nanotron",
    ep_rules=("independent",),
    embedding=textbook.embedding,
    layer=layer,
    head=head,
    gradients_resident=True,
    saves_gathered=False,
    vocabulary_parallel=True,
    pads_rows=False,
    workspace_bytes=64 * MIB,
    reserved_share=RESERVED,
    refuse=refuse,
    model_of=padded,
    finish=finish,
)
