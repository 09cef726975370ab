"""Contracts that every pass keeps, and the order in which they may follow each other."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from playbook.frameworks import policies, policy
from playbook.predict.stages import program_of
from playbook.program.passes import ORDER, enter
from playbook.program.policy import Context, Sizes
from playbook.program.recompute import recompute
from playbook.spec import Layout, Moe, Scenario, Workload, cluster, recipe
from playbook.strategies import plan, plans
from tests import shapes

SMALL = replace(shapes.SMALL, layers=2)


def layer_of(framework="textbook", **context):
    sizes = Sizes.of(SMALL, Workload(sequence=32), recipe("bf16-fp32master"))
    ctx = Context(policy=policy(framework), recipe=recipe("bf16-fp32master"), kv_heads=2, **context)
    return ctx.policy.layer(sizes), ctx


@pytest.mark.parametrize("stops_early", [True, False])
@pytest.mark.parametrize("sequence_parallel", [True, False])
def test_tensor_pass_and_full_recompute_commute(stops_early, sequence_parallel):
    block, ctx = layer_of(tp=2, sequence_parallel=sequence_parallel)
    ctx = replace(ctx, policy=replace(ctx.policy, stops_early=stops_early))
    split = plan("tp").rewrite
    one = recompute(split((block,), ctx), "full", stops_early)
    other = split(recompute((block,), "full", stops_early), ctx)
    assert one == other


@pytest.mark.parametrize("data", ["ddp", "zero1", "zero2", "fsdp2", "hsdp"])
def test_recompute_after_sharding_is_refused(data):
    block, ctx = layer_of(dp=2)
    sharded = plan(data).rewrite((block,), ctx)
    with pytest.raises(ValueError, match="the recompute pass came after the data pass"):
        recompute(sharded, "full", True)


@pytest.mark.parametrize("data", ["ddp", "zero1", "zero2", "fsdp2", "hsdp"])
def test_tensor_pass_after_sharding_is_refused(data):
    block, ctx = layer_of(dp=2, tp=2)
    sharded = plan(data).rewrite((block,), ctx)
    with pytest.raises(ValueError, match="the order is tensor, context, expert, recompute, data"):
        plan("tp").rewrite(sharded, ctx)


def test_a_pass_is_applied_once():
    block, _ = layer_of()
    with pytest.raises(ValueError, match="already; apply it once"):
        enter(enter(block, "tensor"), "tensor")


def test_every_plan_has_a_place_in_the_order():
    assert {entry.step for entry in plans().values()} <= {*ORDER, "pipeline"}


LAYOUTS = st.fixed_dictionaries(
    {
        "dp": st.sampled_from([1, 2, 3]),
        "tp": st.sampled_from([1, 2]),
        "cp": st.sampled_from([1, 2]),
        "cp_method": st.sampled_from(["ring", "all-gather"]),
        "cp_split": st.sampled_from(["contiguous", "zigzag"]),
        "pp": st.sampled_from([1, 2]),
        "zero": st.sampled_from([0, 1, 2, 3]),
        "reshard": st.booleans(),
    }
)
WORK = st.fixed_dictionaries(
    {
        "recompute": st.sampled_from(["none", "full"]),
        "gradient_sync": st.sampled_from(["every", "last"]),
        "optimizer_kernel": st.sampled_from(["fused", "foreach", "for-loop"]),
    }
)


EXPERTS = replace(SMALL, name="experts", moe=Moe(experts=4, active=2, ffn=16, shared_ffn=8, first_dense=1))


def scenario_of(framework, layout, work, microbatches, model=SMALL):
    shape = Layout(**layout)
    batch = shape.dp * microbatches
    return Scenario(
        model,
        Workload(sequence=32, global_batch=batch, **work),
        shape,
        cluster("laptop"),
        framework=framework,
    )


def refused(s):
    """Whether the framework refuses the scenario; then its message says what to use."""
    try:
        program_of(s)
    except ValueError as error:
        if "use" not in str(error):
            raise
        return True
    return False


PARTS = st.sampled_from([{}, {"ep": 2}, {"etp": 2}, {"ep": 4}, {"ep": 2, "etp": 2}])


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(sorted(policies())), LAYOUTS, WORK, st.integers(1, 3))
def test_births_precede_deaths_and_the_step_leaves_nothing_behind(framework, layout, work, microbatches):
    s = scenario_of(framework, layout, work, microbatches)
    if not refused(s):
        assert_closed(s)


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(sorted(policies())), LAYOUTS, PARTS, WORK, st.integers(1, 2))
def test_the_same_holds_with_experts_and_replicas(framework, layout, parts, work, microbatches):
    layout = {**layout, **parts, "dp": 8, "dp_replicate": 2 if layout["zero"] else 1}
    s = scenario_of(framework, layout, work, microbatches, EXPERTS)
    if not refused(s):
        assert_closed(s)


def assert_closed(s):
    """Check the last stage's program."""
    program = program_of(s, s.layout.rank(pp=s.layout.pp - 1))
    held, end = program.held, len(program)
    assert (held.birth <= held.death).all()
    state = held.death >= end
    assert (held.birth[state] == 0).all()
    after = program.memory().left_after(end - 1)
    assert after == program.sizes[state].sum()


@settings(max_examples=30, deadline=None)
@given(LAYOUTS, WORK, st.integers(1, 2))
def test_flops_of_all_ranks_are_those_of_one_process(layout, work, microbatches):
    s = scenario_of("textbook", layout, work, microbatches)
    one = scenario_of("textbook", {"dp": 1}, work, s.layout.dp * microbatches)
    places = [(stage, piece) for stage in range(s.layout.pp) for piece in range(s.layout.cp)]
    total = sum(program_of(s, s.layout.rank(pp=stage, cp=piece)).flops for stage, piece in places)
    assert s.layout.dp * s.layout.tp * total == program_of(one).flops


def test_an_uneven_degree_is_refused_in_words():
    with pytest.raises(ValueError, match="sequence"):
        Scenario(SMALL, Workload(sequence=31), Layout(tp=2, sequence_parallel=True), cluster("laptop"))
