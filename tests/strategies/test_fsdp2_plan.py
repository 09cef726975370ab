import pytest

import playbook as pb
from playbook.frameworks import policy
from playbook.program.block import Block, Weight
from playbook.program.policy import Context
from playbook.program.state import own_rows, shard_numel
from playbook.spec import recipe
from playbook.strategies import plan

LAYER, ROOT = 30_848, 16_448
PSI = 4 * LAYER + ROOT
MIXED = {"recipe": "fsdp2-mixed"}


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_the_papers_state_is_sixteen_bytes_over_n(scenario, ranks):
    assert sum(pb.program(scenario(dp=ranks, zero=3)).memory().state.values()) == 16 * PSI // ranks


def test_one_micro_batch_moves_one_and_a_half_times_the_bytes_of_replicas(scenario):
    sharded, replicated = (pb.traffic(scenario(dp=4, zero=zero, recipe="fp32")) for zero in (3, 0))
    assert sharded.wire_bytes / replicated.wire_bytes == 1.5


@pytest.mark.parametrize("microbatches", [1, 2, 5])
def test_skipped_reductions_move_two_m_plus_one_halves(scenario, microbatches):
    work = {"recipe": "fp32", "global_batch": 4 * microbatches, "gradient_sync": "last"}
    sharded, replicated = (pb.traffic(scenario(dp=4, zero=zero, **work)) for zero in (3, 0))
    assert sharded.wire_bytes / replicated.wire_bytes == (2 * microbatches + 1) / 2


def test_bf16_gathers_and_fp32_reduction_move_the_bytes_of_fp32_replicas(scenario):
    mixed = pb.traffic(scenario(dp=4, zero=3, recipe="fsdp2-mixed"))
    assert mixed.wire_bytes == pb.traffic(scenario(dp=4, recipe="fp32")).wire_bytes
    assert mixed.wire_bytes == 2 * pb.traffic(scenario(dp=4, recipe="bf16")).wire_bytes


def test_keeping_parameters_gathered_saves_the_second_gather(scenario):
    kept = pb.traffic(scenario("torch", dp=2, zero=3, reshard=False, **MIXED))
    freed = pb.traffic(scenario("torch", dp=2, zero=3, **MIXED))
    assert (kept.select(collective="all_gather").count, freed.select(collective="all_gather").count) == (
        5,
        10,
    )
    assert kept.select(collective="reduce_scatter").count == 5


def test_recompute_gathers_no_more(scenario):
    plain = pb.traffic(scenario("torch", dp=2, zero=3, **MIXED))
    again = pb.traffic(scenario("torch", dp=2, zero=3, recompute="full", **MIXED))
    assert plain.table["op"].tolist() == again.table["op"].tolist()


def test_payloads_are_those_of_each_unit(scenario):
    found = pb.traffic(scenario("torch", dp=2, zero=3, **MIXED))
    gathers = found.select(collective="all_gather", phase="F").payload.tolist()
    assert gathers == [2 * ROOT, *[2 * LAYER] * 4]
    reductions = found.select(collective="reduce_scatter").payload.tolist()
    assert reductions == [*[4 * LAYER] * 4, 4 * ROOT]


def test_backward_gathers_one_unit_ahead(scenario):
    ids = pb.program(scenario("torch", dp=2, zero=3, **MIXED)).ids()
    gathers = [text for text in ids if "/B/" in text and "all_gather" in text]
    assert [text.split("/")[2] for text in gathers] == ["", "layers.3", "layers.2", "layers.1", "layers.0"]
    ahead = ids.index("m0/B/layers.0/all_gather@dp#0")
    assert ahead < ids.index("m0/B/layers.1.mlp.down_proj/mm#0")


def unsharded_layers(program, row):
    """How many layers' gathered parameters are alive at a row."""
    level = program.memory().levels[row][program.memory().term_names.index("unsharded")]
    return (level - 2 * ROOT) / (2 * LAYER)


def test_a_layer_is_whole_while_it_runs_and_the_root_all_through_forward(scenario):
    program = pb.program(scenario("torch", dp=2, zero=3, **MIXED))
    ids = program.ids()
    assert unsharded_layers(program, ids.index("m0/F/layers.2.mlp.down_proj/mm#0")) == 1
    assert unsharded_layers(program, ids.index("m0/F/lm_head/mm#0")) == 0
    assert unsharded_layers(program, ids.index("m0/B/layers.2.mlp.down_proj/mm#0")) == 1


def test_layers_that_stay_gathered_add_up(scenario):
    program = pb.program(scenario("torch", dp=2, zero=3, reshard=False, **MIXED))
    ids = program.ids()
    assert unsharded_layers(program, ids.index("m0/F/lm_head/mm#0")) == 4
    assert unsharded_layers(program, ids.index("m0/B/layers.1.mlp.down_proj/mm#0")) == 2


def test_shards_are_whole_rows_and_the_last_rank_may_own_fewer():
    ctx = Context(policy=policy("torch"), recipe=recipe("fp32"), dp=4)
    weight = Weight(name="w", shape=(10, 3))
    assert shard_numel((weight,), ctx) == 9
    owned = [
        own_rows(weight, Context(policy=ctx.policy, recipe=ctx.recipe, dp=4, dp_rank=r)) for r in range(4)
    ]
    assert owned == [9, 9, 9, 3]


def test_the_optimizer_of_a_rank_without_rows_is_empty():
    block = Block(name="layer", layered=True, weights=(Weight(name="w", shape=(5, 2)),))
    ctx = Context(policy=policy("textbook"), recipe=recipe("fp32"), dp=4, dp_rank=3)
    padded = Context(policy=policy("torch"), recipe=recipe("fp32"), dp=4, dp_rank=3)
    (flat,), (rows,) = plan("fsdp2").rewrite((block,), ctx), plan("fsdp2").rewrite((block,), padded)
    sizes = {t.term: t.bytes for t in rows.tensors if t.birth.segment == "S"}
    assert sizes["parameters"] == 4 * 4
    assert sizes["optimizer"] == 0
    assert {t.term: t.bytes for t in flat.tensors}["optimizer"] == 8 * 3


def test_unsynchronised_gradients_stay_whole_until_the_last_micro_batch(scenario):
    program = pb.program(scenario("torch", dp=2, zero=3, global_batch=4, gradient_sync="last", recipe="fp32"))
    walk = program.memory()
    start = program.ids().index("m1/F//all_gather@dp#0")
    assert walk.levels[start][walk.term_names.index("gradients")] == 4 * PSI


def test_gradient_shards_are_four_bytes_over_n_after_backward(scenario):
    program = pb.program(scenario("torch", dp=2, zero=3, **MIXED))
    walk = program.memory()
    assert walk.levels[-1][walk.term_names.index("gradients")] == 4 * PSI // 2


def test_foreach_kernels_hold_one_more_copy_of_what_they_update(scenario):
    fused, foreach = (
        pb.program(scenario("torch", dp=2, zero=3, optimizer_kernel=kernel, **MIXED)).memory()
        for kernel in ("fused", "foreach")
    )
    assert foreach.totals[-1] - fused.totals[-1] == 4 * PSI // 2


def test_the_last_gradient_of_a_unit_stays_until_it_is_reduced(scenario):
    # Traced: `foreach_reduce` clears its list of gradients, and keeps the one that its loop ended with.
    program = pb.program(scenario("torch", dp=2, zero=3, recipe="fsdp2-mixed", kernels="cpu"))
    found = program.memory().terms_at(program.ids().index("m0/B/layers.3/reduce_scatter@dp#0"))
    head, down, shard = 2 * (128 * 64 + 64), 2 * 64 * 96, 4 * 30_848 // 2
    assert found["gradients"] == head + down + shard
