"""A scenario's stages: the framework's templates, put through the layout's passes in their order."""

from dataclasses import replace

from playbook.frameworks import policy
from playbook.predict.rates import rates_of
from playbook.predict.unbuilt import refuse_unbuilt
from playbook.program.assemble import assemble
from playbook.program.block import Block, Tensor, Weight
from playbook.program.lay import Stage
from playbook.program.op import At
from playbook.program.order import Run, accumulate
from playbook.program.passes import Blocks, Plan
from playbook.program.policy import Context, Sizes
from playbook.program.recompute import recompute
from playbook.program.schedule import Schedule, schedule
from playbook.program.step import Program
from playbook.program.summary import RankMemory, rank_memory
from playbook.spec import Scenario
from playbook.strategies import plans
from playbook.strategies.pp.plan import keep_input, receive_block, runs, send_block


def context(s: Scenario, rank: int = 0, symbolic: bool = False) -> Context:
    """What passes may read of a scenario, as seen by a rank.

    Raises
    ------
    ValueError
        If the scenario asks for what no program models yet, or its framework does not do.
    """
    refuse_unbuilt(s)
    layout, workload = s.layout, s.workload
    return Context(
        policy=policy(s.framework),
        recipe=s.recipe,
        tp=layout.tp,
        dp=layout.dp,
        dp_rank=layout.coordinates(rank)["dp"],
        kv_heads=s.model.kv_heads,
        sequence_parallel=layout.sequence_parallel,
        reshard=layout.reshard,
        recompute=workload.recompute,
        gradient_sync=workload.gradient_sync,
        optimizer_kernel=workload.optimizer_kernel,
        microbatches=s.microbatches,
        pipelined=layout.pp > 1,
        symbolic=symbolic,
    )


def pass_of(s: Scenario, step: str) -> Plan | None:
    """The strategy that a layout uses at a step of the order, if any."""
    found = [plan for plan in plans().values() if plan.step == step and plan.applies(s.layout)]
    return found[0] if found else None


def templates(s: Scenario, stage: int, ctx: Context, layers: int | None = None) -> Blocks:
    """A stage's blocks as the framework's policy gives them, before any pass."""
    sizes = Sizes.of(s.model, s.workload, s.recipe, symbolic=ctx.symbolic)
    rules, last = ctx.policy, s.layout.stages - 1
    first = rules.embedding(sizes) if stage == 0 else receive_block(sizes, stage)
    end = rules.head(sizes) if stage == last else send_block(sizes, stage, rules.keeps_boundaries)
    if s.model.tied and stage == last > 0:
        end = replace(end, weights=(*end.weights, *table_copy(sizes, end)))
    count = s.stage_layers[stage] if layers is None else layers
    return (first, *[rules.layer(sizes)] * count, end)


def table_copy(sizes: Sizes, head: Block) -> tuple[Weight, ...]:
    """The token table that the last stage holds too where the head is tied to it."""
    table = sizes.embedding_parameters[0]
    product = next(op for op in head.backward if op.owner == "lm_head" and op.flops)
    ready = head.weights[0].ready._replace(row=product.name)
    return (Weight(name="lm_head.weight", shape=table.shape, tp_dim=table.tp_dim, ready=ready),)


def blocks_of(s: Scenario, stage: int, ctx: Context, layers: int | None = None) -> Blocks:
    """A stage's blocks after every pass."""
    blocks = templates(s, stage, ctx, layers)
    tensor, data = pass_of(s, "tensor"), pass_of(s, "data")
    if tensor is not None:
        blocks = tensor.rewrite(blocks, ctx)
    blocks = recompute(blocks, ctx.recompute, ctx.policy.stops_early)
    if ctx.policy.keeps_boundaries:
        blocks = keep_input(blocks)
    if stage < s.layout.pp and s.workload.kernels == "cuda":
        blocks = with_workspace(blocks, ctx)
    root = tuple(weight for block in blocks if not block.layered for weight in block.weights)
    if data is None:
        return blocks
    distinct = {id(block): block for block in blocks}.values()
    every = tuple(weight for block in distinct for weight in block.weights)
    return data.rewrite(blocks, replace(ctx, root=root, stage=every))


def with_workspace(blocks: Blocks, ctx: Context) -> Blocks:
    """Add what libraries hold for good, once a rank."""
    size = ctx.policy.workspace_bytes
    if not size:
        return blocks
    held = Tensor(name="workspace", term="workspace", bytes=size, birth=At("S"))
    return (replace(blocks[0], tensors=(*blocks[0].tensors, held)), *blocks[1:])


def layer_numbers(s: Scenario, stage: int) -> list[int]:
    """Global layer number of each block of a stage, −1 at its ends."""
    before = sum(s.stage_layers[:stage])
    return [-1, *range(before, before + s.stage_layers[stage]), -1]


def lay(s: Scenario, stage: int, ctx: Context) -> Stage:
    """A stage laid out for one micro-batch."""
    return Stage(blocks_of(s, stage, ctx), layer_numbers(s, stage))


def pipeline(s: Scenario) -> Schedule:
    """The layout's schedule at its size."""
    layout = s.layout
    return schedule(layout.schedule, layout.pp, s.microbatches, layout.chunks, framework=s.framework)


def order_of(s: Scenario, pp_rank: int) -> tuple[Run, ...]:
    """A pipeline rank's order list."""
    if s.layout.pp == 1 and s.layout.stages == 1:
        return accumulate(s.microbatches)
    return runs(pipeline(s).order(pp_rank))


def program_of(s: Scenario, rank: int = 0) -> Program:
    """Return the step program of one rank."""
    refuse_unbuilt(s)
    ctx = context(s, rank)
    order = order_of(s, s.layout.coordinates(rank)["pp"])
    stages = {number: lay(s, number, ctx) for number in sorted({run.stage for run in order})}
    return assemble(
        stages, order, scenario=s.model.name, rank=rank, axes=dict(s.layout.axes), rates=rates_of(s)
    )


def rank_memories(s: Scenario) -> list[RankMemory]:
    """Memory of the first rank of every pipeline rank, action by action; equal stages are laid once."""
    ctx, known, laid = context(s), {}, {}
    found = []
    for pp_rank in range(s.layout.pp):
        order = order_of(s, pp_rank)
        stages = {}
        for number in sorted({run.stage for run in order}):
            key = (number == 0, number == s.layout.stages - 1, s.stage_layers[number], number < s.layout.pp)
            if key not in laid:
                laid[key] = lay(s, number, ctx)
            stages[number] = laid[key]
        found.append(rank_memory(stages, order, known))
    return found
