"""DeepSpeed: Hugging Face models under ZeRO, with buckets of fixed size.

What its code and its configuration's defaults do (deepspeedai/DeepSpeed, runtime/zero/config.py,
stage_1_and_2.py, stage3.py, runtime/pipe/engine.py; docs/config-json):

- A layer keeps what Hugging Face's code keeps (framework `transformers`).
- Weights lie in one flat BF16 buffer, FP32 weights and both moments are shared out from stage 1 on, gradients
  from stage 2 on, weights in stage 3.
- Gradients are reduced from a bucket of 500 M elements (`reduce_bucket_size`), of which there are two where
  communication overlaps (`overlap_comm`, by default in stage 3 only). After the step stages 1 and 2 gather
  weights through one of as many (`allgather_bucket_size`).
- Stage 3 keeps gathered weights for reuse up to 1 G elements (`stage3_max_live_parameters`, within
  `stage3_max_reuse_distance`), and gathers 50 M ahead (`stage3_prefetch_bucket_size`). So stage 3 can take
  more memory than stage 2.
- Stages 2 and 3 reduce with every micro-batch: `no_sync` asserts that gradients are not partitioned
  (runtime/engine.py).
- Pipelines run 1F1B, and not with stage 2 or 3, whose gradients would be reduced with every micro-batch.
"""

from dataclasses import replace

from playbook.frameworks import transformers
from playbook.program.block import Block, Tensor
from playbook.program.op import OPTIMIZER, At
from playbook.program.policy import Context, Policy
from playbook.spec import Scenario
from playbook.spec.cluster import MIB

BUCKET = 500_000_000
LIVE = 1_000_000_000
PREFETCH = 50_000_000
RECIPES = ("bf16-fp32master", "bf16-fp32grad", "fp32")
SHARED_WEIGHTS = 3


def finish(blocks: tuple[Block, ...], s: Scenario, ctx: Context) -> tuple[Block, ...]:
    """Add buckets, and in stage 3 the weights that stay gathered."""
    if s.layout.dp == 1:
        return blocks
    first, *rest = blocks
    return (replace(first, tensors=(*first.tensors, *buffers(s, ctx))), *rest)


def buffers(s: Scenario, ctx: Context) -> list[Tensor]:
    """What a rank holds besides state and activations; no buffer is larger than what goes through it."""
    numel = s.model.parameters // s.layout.pp
    each, state = ctx.recipe.compute_bytes, At("S")
    shared = s.layout.zero == SHARED_WEIGHTS
    bucket = ctx.recipe.reduce_bytes * min(BUCKET, numel)
    held = [
        Tensor(
            name="reduce buckets",
            term="communication_buffers",
            bytes=bucket * (2 if shared else 1),
            birth=state,
        )
    ]
    if shared:
        live = Tensor(name="live weights", term="unsharded", bytes=each * min(LIVE, numel), birth=state)
        ahead = Tensor(
            name="prefetched weights",
            term="communication_buffers",
            bytes=each * min(PREFETCH, numel),
            birth=state,
        )
        return [*held, live, ahead]
    if s.layout.zero:
        gathered = Tensor(
            name="gather bucket",
            term="communication_buffers",
            bytes=each * min(BUCKET, numel),
            birth=OPTIMIZER,
            fwd_end=OPTIMIZER,
        )
        return [*held, gathered]
    return held


def refuse(s: Scenario) -> None:
    """Refuse what DeepSpeed does not do, or this accounting does not know.

    Raises
    ------
    ValueError
        With what would work.
    """
    layout, work = s.layout, s.workload
    wrong = [
        (layout.tp > 1, f"tp={layout.tp}", transformers.without_tp(s)),
        (layout.ep > 1, f"ep={layout.ep}", "use ep=1"),
        (
            layout.pp > 1 and layout.zero > 1,
            f"pp={layout.pp} with zero={layout.zero}: its pipeline reduces once a step",
            "use zero=1, or pp=1",
        ),
        (
            layout.zero > 1 and work.gradient_sync == "last" and s.microbatches > 1,
            f"gradient_sync='last' with zero={layout.zero}: no_sync refuses shared gradients",
            "use gradient_sync='every', or zero=1, which keeps them whole",
        ),
        (layout.pp > 1 and layout.schedule != "1f1b", f"schedule={layout.schedule!r}", "use schedule='1f1b'"),
        (layout.dp_replicate > 1, f"dp_replicate={layout.dp_replicate}", "use dp_replicate=1"),
        (work.recipe not in RECIPES, f"recipe={work.recipe!r}", f"use one of {', '.join(RECIPES)}"),
        (layout.cp > 1 and layout.cp_method != "ulysses", f"cp={layout.cp}", "use cp_method='ulysses'"),
    ]
    for given, what, works in wrong:
        if given:
            raise ValueError(f"{what}; framework 'deepspeed' does not do that; {works}")
    transformers.refuse_code(s, "deepspeed")


POLICY = Policy(
    name="deepspeed",
    embedding=transformers.embedding,
    layer=transformers.layer,
    head=transformers.head,
    buffers=False,
    gradients_resident=True,
    pads_rows=False,
    workspace_bytes=64 * MIB,
    refuse=refuse,
    finish=finish,
)
