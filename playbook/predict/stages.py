"""A scenario's stages: the framework's templates, put through the layout's passes in their order."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from playbook.frameworks import policy
from playbook.predict.orders import (
    columns_of,
    near,
    order_of,
    pipeline,
    reduces_after,
    routes,
    splits_backward,
)
from playbook.predict.rates import rates_of
from playbook.predict.stage_templates import by_recipe, end_template, layer_template, table_copy
from playbook.predict.unbuilt import refuse_unbuilt
from playbook.program.assemble import assemble
from playbook.program.lay import Stage
from playbook.program.passes import ORDER, Blocks, Plan
from playbook.program.policy import Context, Sizes
from playbook.program.recompute import recompute
from playbook.program.schedule import Schedule
from playbook.program.sizes import narrower
from playbook.program.state import int_of, with_workspace
from playbook.program.step import Program
from playbook.program.summary import RankMemory, Summaries, rank_memory
from playbook.program.weight_calls import call_by_call
from playbook.spec import Scenario
from playbook.strategies import plans
from playbook.strategies.pp.plan import keep_input, leave_to_weights, receive_block, send_block, sum_copies

BEFORE_RECOMPUTE = ORDER[: ORDER.index("recompute")]
"""Steps of the order whose rows recomputation repeats."""

OPTIMIZER_STATE = frozenset(("optimizer", "master_weights"))
HOSTED = {
    "optimizer": OPTIMIZER_STATE,
    "gradients": OPTIMIZER_STATE | {"gradients"},
    "all": OPTIMIZER_STATE | {"gradients", "parameters"},
}
"""Terms of the state that are kept on the host, by `Workload.offload_parts`."""

SHARED_GRADIENTS = 2
"""ZeRO stage from which on a rank holds its share of the gradients only."""


def context(s: Scenario, rank: int = 0, symbolic: bool = False) -> Context:
    """What passes may read of a scenario, as seen by a rank.

    Raises
    ------
    ValueError
        If the scenario asks for what no program models yet, or its framework does not do.
    """
    refuse_unbuilt(s)
    layout, workload, place = s.layout, s.workload, s.layout.coordinates(rank)
    return Context(
        policy=policy(s.framework),
        recipe=s.recipe,
        tp=layout.tp,
        dp=layout.dp,
        cp=layout.cp,
        ep=layout.ep,
        etp=layout.etp,
        ep_rule=layout.ep_rule,
        dp_replicate=layout.dp_replicate,
        tp_rank=place["tp"],
        dp_rank=place["dp"],
        cp_rank=place["cp"],
        cp_method=layout.cp_method,
        cp_split=layout.cp_split,
        sequence=workload.sequence,
        kv_heads=s.model.kv_heads,
        sequence_parallel=layout.sequence_parallel,
        reshard=layout.reshard,
        recompute=workload.recompute,
        gradient_sync=workload.gradient_sync,
        optimizer_kernel=workload.optimizer_kernel,
        microbatches=s.microbatches,
        pipelined=layout.pp > 1,
        reduces_after=reduces_after(s),
        symbolic=symbolic,
        hosted=HOSTED[workload.offload_parts] if workload.offload != "none" else frozenset(),
        frozen_table_bytes=4 if workload.lora is not None and workload.lora.tables == "fp32" else 2,
    )


def pass_of(s: Scenario, step: str) -> Plan | None:
    """The strategy that a layout uses at a step of the order, if any."""
    found = [plan for plan in plans().values() if plan.step == step and plan.applies(s.layout)]
    return found[0] if found else None


def templates(s: Scenario, slot: int, ctx: Context, layers: Sequence[int] | None = None) -> Blocks:
    """A stage's blocks as the framework's policy gives them, before any pass; equal layers are one object.

    Parameters
    ----------
    s, ctx
        The scenario, and what passes may read of it.
    slot
        Number of the stage in the schedule; copies of a stage have numbers of their own.
    layers
        Numbers of the layers of the stage; the layout's if not given.
    """
    sizes = Sizes.of(ctx.policy.model_of(s), s.workload, s.recipe, symbolic=ctx.symbolic)
    rules, last, stage = ctx.policy, s.layout.stages - 1, slot % s.layout.stages
    keeps, (before, after) = rules.keeps_boundaries, near(s, slot)
    first = end_template(rules.embedding, sizes) if stage == 0 else receive_block(sizes, slot, before, keeps)
    end = end_template(rules.head, sizes) if stage == last else send_block(sizes, slot, keeps, after)
    if s.model.tied and stage == last > 0:
        end = replace(end, weights=(*end.weights, *table_copy(sizes, end)))
    kinds = kinds_of(s, stage_numbers(s, stage) if layers is None else layers)
    every = kinds_of(s, range(s.model.layers))
    made = {kind: layer_template(rules.layer, sizes, every.index(kind)) for kind in set(kinds)}
    return (first, *(made[kind] for kind in kinds), end)


def kinds_of(s: Scenario, layers: Sequence[int]) -> list[tuple[int, int | None]]:
    """What tells layers apart: their weights, and a window that is narrower than the sequence."""
    windows = [narrower(window, s.workload.sequence) for window in s.model.windows]
    return [(s.model.kind_of(layer), windows[layer]) for layer in layers]


def stage_numbers(s: Scenario, stage: int) -> range:
    """Global numbers of a stage's layers."""
    before = sum(s.stage_layers[:stage])
    return range(before, before + s.stage_layers[stage])


def blocks_of(s: Scenario, slot: int, ctx: Context, layers: Sequence[int] | None = None) -> Blocks:
    """A stage's blocks after every pass; as for `templates`."""
    blocks, data = on_ranks(s, slot, ctx, layers), pass_of(s, "data")
    blocks = recompute(blocks, ctx.recompute, ctx.policy.stops_early, ctx.policy.selective_keeps)
    if ctx.policy.keeps_boundaries:
        blocks = keep_input(blocks)
    if slot < s.layout.pp and s.workload.kernels == "cuda":
        blocks = with_workspace(blocks, ctx)
    root = tuple(weight for block in blocks if not block.layered for weight in block.weights)
    if data is not None:
        distinct = {id(block): block for block in blocks}.values()
        every = tuple(weight for block in distinct for weight in block.weights)
        before, after = beside(s, slot, ctx) if layers is None else ((), ())
        blocks = data.rewrite(blocks, replace(ctx, root=root, stage=every, before=before, after=after))
    if ctx.policy.leaves_to_weights and ctx.pipelined:
        if slot % s.layout.stages == 0:
            blocks = leave_to_weights(blocks)
        elif splits_backward(s.layout.schedule):
            blocks = call_by_call(blocks, repeats=ctx.recompute == "full")
    if routes(s)[1] > 1:
        blocks = sum_copies(blocks, ctx, slot, s.layout.zero >= SHARED_GRADIENTS)
    return ctx.policy.finish(blocks, s, ctx)


def on_ranks(s: Scenario, slot: int, ctx: Context, layers: Sequence[int] | None = None) -> Blocks:
    """A stage's blocks after the passes whose rows recomputation repeats; as for `templates`."""
    blocks = by_recipe(s, templates(s, slot, ctx, layers), ctx)
    for step in BEFORE_RECOMPUTE:
        plan = pass_of(s, step)
        blocks = plan.rewrite(blocks, ctx) if plan is not None else blocks
    return blocks


def beside(s: Scenario, slot: int, ctx: Context) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Elements of each weight of the rank's stages before and behind one, where it hands out whole weights
    of all of them together; else none."""
    if s.layout.zero != 1 or s.layout.pp == 1 or not ctx.policy.broadcasts or ctx.symbolic:
        return (), ()
    owners = routes(s)[0]
    mine = [other for other, owner in enumerate(owners) if owner == owners[slot]]
    before, after = ([other for other in mine if (other - slot) * way > 0] for way in (-1, 1))
    return numels(s, tuple(before), ctx), numels(s, tuple(after), ctx)


@lru_cache(maxsize=128)
def numels(s: Scenario, slots: tuple[int, ...], ctx: Context) -> tuple[int, ...]:
    """Elements of each weight of some stages; the stages of one rank ask for each other's."""
    return tuple(int_of(w.numel) for slot in slots for block in on_ranks(s, slot, ctx) for w in block.weights)


def layer_numbers(s: Scenario, slot: int) -> list[int]:
    """Global layer number of each block of a stage, −1 at its ends."""
    return [-1, *stage_numbers(s, slot % s.layout.stages), -1]


def lay(s: Scenario, slot: int, ctx: Context) -> Stage:
    """A stage laid out for one micro-batch."""
    return Stage(blocks_of(s, slot, ctx), layer_numbers(s, slot))


def lay_distinct(s: Scenario, ctx: Context, slots: Iterable[int]) -> dict[int, Stage]:
    """Stages by number, laid once each kind; messages and layers may have another stage's numbers."""
    laid: dict[tuple[object, ...], Stage] = {}
    found, last = {}, s.layout.stages - 1
    for slot in slots:
        stage = slot % s.layout.stages
        first_chunk = slot < s.layout.pp and ctx.policy.workspace_bytes > 0
        kinds = tuple(kinds_of(s, stage_numbers(s, stage)))
        key = (stage == 0, stage == last, kinds, first_chunk, *near(s, slot), *beside(s, slot, ctx))
        if key not in laid:
            laid[key] = lay(s, slot, ctx)
        found[slot] = laid[key]
    return found


def program_of(s: Scenario, rank: int = 0) -> Program:
    """Return the step program of one rank."""
    refuse_unbuilt(s)
    ctx = context(s, rank)
    order = order_of(s, s.layout.coordinates(rank)["pp"])
    stages = {slot: lay(s, slot, ctx) for slot in sorted({run.stage for run in order})}
    return assemble(
        stages, order, scenario=s.model.name, rank=rank, axes=s.layout.group_sizes, rates=rates_of(s)
    )


def rank_memories(
    s: Scenario, made: Schedule | None = None, stages: dict[int, Stage] | None = None
) -> list[RankMemory]:
    """Memory of the first rank of every pipeline rank, action by action; equal stages are laid once.

    Parameters
    ----------
    s
        The scenario.
    made, stages
        Its schedule and all its stages, if they are there already.
    """
    made = made or pipeline(s)
    stages = stages or lay_distinct(s, context(s), range(len(made.placement)))
    known: Summaries = {}
    found = []
    for pp_rank in range(s.layout.pp):
        order = columns_of(s, pp_rank, made)
        mine = {slot: stages[slot] for slot in np.unique(order.stage).tolist()}
        found.append(rank_memory(mine, order, known))
    return found
