"""Expert parallelism by plan: which experts a rank holds, who shares them, what travels, what is refused."""

from dataclasses import replace

import pytest

import playbook as pb
from playbook.frameworks import policy
from playbook.predict.stages import blocks_of, context, templates
from playbook.program.block import Block, Tensor, Weight
from playbook.program.op import At, Op, rows
from playbook.program.policy import Context
from playbook.program.recompute import recompute
from playbook.program.state import held_numel, shard_numel
from playbook.spec import Moe, Workload, recipe
from playbook.strategies import plan
from tests.shapes import SMALL, scenario_of

E, K, WIDTH, HIDDEN, TOKENS = 8, 2, 48, 64, 32
MODEL = replace(SMALL, name="small of experts", moe=Moe(experts=E, active=K, ffn=WIDTH))
ATTENTION = 64 * 64 + 2 * 64 * 32 + 64 * 64
EXPERTS = E * 3 * HIDDEN * WIDTH
ROUTER = E * HIDDEN
DENSE = 4 * (ATTENTION + ROUTER + 2 * HIDDEN) + 2 * 128 * HIDDEN + HIDDEN
ROUTED = 2 * TOKENS * K * HIDDEN
"""Bytes of the features of all routed tokens in BF16."""


def scenario(framework="textbook", **fields):
    return scenario_of(framework, MODEL, **fields)


def state(**fields):
    return sum(pb.program(scenario(**fields)).memory().state.values())


def test_the_counts_of_these_tests_are_those_of_the_model():
    assert MODEL.parameters == DENSE + 4 * EXPERTS


@pytest.mark.parametrize(("dp", "ep"), [(2, 1), (2, 2), (4, 2), (8, 8)])
def test_a_rank_holds_its_experts_and_shares_them_with_those_that_hold_the_same(dp, ep):
    peers = dp // ep
    assert state(dp=dp, ep=ep) == 16 * (DENSE + 4 * EXPERTS // ep)
    mine = 4 * EXPERTS // ep
    assert state(dp=dp, ep=ep, zero=1) == 4 * (DENSE + mine) + 12 * (DENSE // dp + mine // peers)
    assert state(dp=dp, ep=ep, zero=3) == 16 * (DENSE // dp + mine // peers)


def test_more_expert_parallelism_leaves_sharded_state_as_it_is():
    """Dense over dp, experts over ep x dp/ep: always 1/dp of either."""
    assert {state(dp=8, ep=ep, zero=3) for ep in (1, 2, 4, 8)} == {16 * (DENSE + 4 * EXPERTS) // 8}


def test_experts_are_shared_among_the_ranks_of_tensor_parallelism_too():
    """dp=2, tp=2, etp=1: each expert is whole on all 4 ranks, and shared among 4; dense weights among 2."""
    s = scenario(dp=2, tp=2, zero=3)
    norms = 4 * (ROUTER + 2 * HIDDEN) + HIDDEN
    dense = norms // 2 + (DENSE - norms) // 4
    assert sum(pb.program(s).memory().state.values()) == 16 * (dense + 4 * EXPERTS // 4)


def test_tensor_parallelism_in_experts_splits_their_width():
    s = scenario(dp=2, tp=2, etp=2)
    block = blocks_of(s, 0, context(s))[1]
    shapes = {weight.name.split(".")[2]: weight.shape for weight in block.weights if weight.expert}
    assert shapes == {
        "gate_proj": (E, WIDTH // 2, HIDDEN),
        "up_proj": (E, WIDTH // 2, HIDDEN),
        "down_proj": (E, HIDDEN, WIDTH // 2),
    }


def test_routed_tokens_travel_four_times_a_layer():
    s = scenario(dp=4, ep=4)
    found = pb.traffic(s).select(axis="ep")
    assert found.by_collective == {"all_to_all@ep": 4 * 4 * ROUTED}
    assert found.wire_bytes == 3 / 4 * 4 * 4 * ROUTED
    ids = [text for text in found.table["op"] if "layers.2" in text]
    assert ids == [f"m0/{phase}/layers.2.mlp.experts/all_to_all@ep#{k}" for phase in "FB" for k in (0, 1)]


@pytest.mark.parametrize("sequence_parallel", [True, False])
def test_ranks_of_tensor_parallelism_send_a_part_of_the_tokens_each(sequence_parallel):
    s = scenario(dp=2, tp=2, ep=4, sequence_parallel=sequence_parallel)
    assert set(pb.traffic(s).select(axis="ep").payload.tolist()) == {ROUTED // 2}


def test_context_parallel_ranks_send_their_own_tokens():
    assert set(pb.traffic(scenario(cp=4, ep=4)).select(axis="ep").payload.tolist()) == {ROUTED // 4}


def test_tensor_parallelism_in_experts_gathers_tokens_and_scatters_what_comes_out():
    """Each of two ranks has half of the tokens, and needs all for its half of the width."""
    s = scenario(dp=2, tp=2, etp=2, ep=2, sequence_parallel=True)
    found = pb.traffic(s).table
    mine = found[found["op"].str.contains("layers.0.mlp.experts") & (found["axis"] == "tp")]
    assert mine["collective"].tolist() == ["all_gather", "reduce_scatter"] * 2
    assert set(mine["payload_bytes"]) == {ROUTED}
    assert set(mine["wire_bytes"]) == {ROUTED / 2}


def test_without_sequence_parallelism_the_output_is_made_whole_again():
    stream = 2 * TOKENS * HIDDEN

    def behind(**fields):
        found = pb.traffic(scenario(tp=2, dp=2, **fields)).table
        mine = found[found["op"].str.contains(r"layers.0.mlp/")]
        assert set(mine["payload_bytes"]) == {stream}
        return mine["collective"].tolist()

    assert behind() == ["all_gather"] * 2
    assert behind(etp=2) == ["all_reduce"] * 2


def experts_rows(s):
    table = pb.traffic(s).table
    return table[table["op"].str.contains("mlp.experts") & (table["axis"] == "dp")]


def test_gradients_of_experts_are_reduced_among_their_peers_only():
    """dp=4, ep=2: two ranks hold the same four experts; 2 · 4 · 3 · 64 · 48 bytes a layer."""
    mine = experts_rows(scenario(dp=4, ep=2, recipe="bf16-fp32master"))
    assert mine["collective"].tolist() == ["all_reduce"] * 4
    assert set(mine["payload_bytes"]) == {2 * EXPERTS // 2}
    assert set(mine["wire_bytes"]) == {2 * 1 / 2 * 2 * EXPERTS // 2}
    assert len(experts_rows(scenario(dp=4, ep=4))) == 0


def test_sharded_experts_are_gathered_apart_from_the_layer():
    mine = experts_rows(scenario(dp=4, ep=2, zero=3))
    assert sorted(mine["collective"]) == ["all_gather"] * 8 + ["reduce_scatter"] * 4
    assert set(mine["payload_bytes"]) == {2 * EXPERTS // 2}
    assert set(mine["wire_bytes"]) == {EXPERTS // 2}


def test_without_peers_of_their_own_experts_travel_with_their_layer():
    assert len(experts_rows(scenario(dp=4, zero=3))) == 0


@pytest.mark.parametrize(
    "fields",
    [
        {"dp": 4, "ep": 4},
        {"dp": 2, "tp": 2, "ep": 2, "sequence_parallel": True},
        {"dp": 2, "tp": 2},
        {"dp": 1, "tp": 2, "etp": 2},
        {"dp": 2, "cp": 2, "ep": 4, "recompute": "full"},
        {"dp": 2, "tp": 2, "etp": 2, "ep": 2, "sequence_parallel": True},
    ],
)
def test_all_ranks_together_do_the_work_of_one(fields):
    s = scenario(**fields)
    batch = {"global_batch": s.layout.dp, "recompute": fields.get("recompute", "none")}
    whole = pb.program(scenario(**batch)).flops
    total = s.world * pb.program(s).flops
    # The router is whole on every rank of tensor parallelism without sequence parallelism, as norms are.
    router = 3 * 4 * 2 * TOKENS * HIDDEN * E
    copies = s.layout.dp * (s.layout.tp - 1) if not s.layout.sequence_parallel else 0
    assert total == whole + copies * router


def test_context_and_expert_and_tensor_passes_commute():
    s = scenario(dp=2, cp=2, tp=2, ep=2, sequence_parallel=True, sequence=64)
    ctx = context(s)
    layer = templates(s, 0, ctx)[1]
    names = ("tp", "cp", "ep")
    results = []
    for order in ((0, 1, 2), (1, 0, 2), (2, 1, 0), (0, 2, 1)):
        blocks = (layer,)
        for place in order:
            blocks = plan(names[place]).rewrite(blocks, ctx)
        (block,) = blocks
        results.append(
            (
                {op.name: (op.flops, op.payload) for op in (*block.forward, *block.backward)},
                sorted((t.name, t.bytes) for t in block.tensors),
                block.weights,
            )
        )
    assert all(result == results[0] for result in results)


@pytest.mark.parametrize("name", ["cp", "ep"])
def test_exchanges_after_recompute_are_refused(name):
    s = scenario(dp=2, cp=2, ep=2)
    ctx = context(s)
    layer = recompute((templates(s, 0, ctx)[1],), "full", True)
    with pytest.raises(ValueError, match="pass came after the recompute pass"):
        plan(name).rewrite(layer, ctx)


def hand_made():
    """A block with one expert product: 4 experts of 6 by 10, 8 routed tokens."""
    names = ("mlp/dispatch#0", "mlp.experts/mm#0", "mlp/combine#0")
    regions = ("routed", "expert", "routed")
    forward = rows(
        Op(owner=name.partition("/")[0], op=name.partition("/")[2][:-2], region=region, flops=flops)
        for name, region, flops in zip(names, regions, (0, 960, 0), strict=True)
    )
    sent = Tensor(
        name="dispatched",
        term="activations",
        bytes=160,
        birth=At("F", names[0]),
        fwd_end=At("F", names[1]),
        region="routed",
    )
    made = replace(
        sent, name="made", bytes=96, birth=At("F", names[1]), fwd_end=At("F", names[2]), region="expert"
    )
    weight = Weight(name="mlp.experts.up_proj", shape=(4, 6, 10), tp_dim=1, expert=True)
    return Block(name="layer", layered=True, forward=forward, tensors=(sent, made), weights=(weight,))


def test_a_block_made_by_hand_is_shared_out_as_the_contract_says():
    ctx = Context(
        policy=policy("torch"), recipe=recipe("bf16"), dp=4, tp=2, ep=2, etp=2, sequence_parallel=True
    )
    (block,) = plan("ep").rewrite((hand_made(),), ctx)
    assert [op.name for op in block.forward] == [
        "mlp/dispatch#0",
        "mlp.experts/all_to_all@ep#0",
        "mlp.experts/all_gather@tp#0",
        "mlp.experts/mm#0",
        "mlp.experts/reduce_scatter@tp#0",
        "mlp.experts/all_to_all@ep#1",
        "mlp/combine#0",
    ]
    assert {op.label: op.payload for op in block.forward if op.axis} == {
        "all_to_all@ep": 80,
        "all_gather@tp": 160,
        "reduce_scatter@tp": 160,
    }
    assert {t.name: t.bytes for t in block.tensors} == {
        "dispatched": 160,
        "made": 48,
        "in mlp.experts/all_to_all@ep#0": 80,
        "in mlp.experts/all_to_all@ep#1": 80,
    }
    assert block.weights[0].shape == (2, 3, 10)
    assert sum(op.flops for op in block.forward) == 480


def test_eight_experts_have_eight_rows_however_many_ranks_there_are():
    """A tensor of 8 experts on 64 ranks of FSDP2: each shard is a whole expert, only 8 ranks own one."""
    weight = Weight(name="mlp.experts.up_proj", shape=(8, 10, 3), tp_dim=1, expert=True)
    ctx = Context(policy=policy("transformers"), recipe=recipe("fsdp2-mixed"), dp=64)
    assert shard_numel((weight,), ctx) == 30
    owned = [held_numel((weight,), replace(ctx, dp_rank=rank), True, "optimizer") for rank in range(64)]
    assert owned == [30] * 8 + [0] * 56


def test_mixtral_under_fsdp2_on_64_ranks_starts_with_twenty_one_gib_not_two_point_seven():
    """46.7 · 10⁹ FP32 parameters over 64 would be 2.7 GiB; expert tensors of 8 rows leave 1/8 of them."""
    model = pb.model("mixtral-8x7b")
    layout = pb.Layout(dp=64, zero=3)
    s = pb.Scenario(model, Workload(recipe="fsdp2-mixed"), layout, framework="transformers")
    first, ninth = (pb.program(s, rank=rank).memory().state for rank in (0, 8))
    held = first["parameters"]
    experts = 4 * 32 * 3 * 4096 * 14336  # one of eight experts of 32 layers
    rest = 4 * (model.parameters - 8 * experts // 4)
    assert round(4 * model.parameters / 64 / 2**30, 1) == 2.7
    assert round(held / 2**30, 1) == 21.1
    assert held == pytest.approx(experts + rest / 64, rel=1e-3)
    # Padding is stored on every rank; only eight own an expert and a row of the router, with their moments.
    assert ninth["parameters"] == held
    assert first["optimizer"] - ninth["optimizer"] == 2 * (experts + 4 * 32 * 4096)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        (
            {"dp": 3, "ep": 3},
            "ep=3 does not divide experts=8 of small of experts; ep in 1, 2, 4, 8 would work",
        ),
        ({"dp": 5, "etp": 5}, "etp=5 does not divide features of an expert=48 .*etp in 1, 2, 3, 4, 6, 8"),
        ({"dp": 4, "ep": 3}, "ep=3 x etp=1 does not divide dp=4 x cp=1 x tp=1 = 4"),
        (
            {"dp": 4, "ep": 4, "dp_replicate": 2},
            "does not divide the 2 ranks of one of dp_replicate=2 replicas",
        ),
    ],
)
def test_experts_that_do_not_divide_are_refused_with_what_does(fields, text):
    with pytest.raises(ValueError, match=text):
        scenario(**fields)


def test_a_dense_model_has_no_experts_to_share_out():
    with pytest.raises(ValueError, match="ep=2 but small has no routed experts; use ep=1"):
        scenario_of("textbook", dp=2, ep=2)


MEGATRON = {"framework": "megatron", "recipe": "bf16-fp32grad"}
PRESETS = [
    ("deepseek-v3", {"dp": 64, "pp": 16, "ep": 64, "zero": 1, **MEGATRON}),
    ("mixtral-8x7b", {"dp": 8, "cp": 2, "tp": 2, "ep": 4, "sequence_parallel": True, "zero": 1, **MEGATRON}),
    ("mixtral-8x7b", {"dp": 8, "ep": 8, "zero": 1}),
    ("mixtral-8x7b", {}),
    ("qwen3-30b-a3b", {"dp": 32, "cp": 2, "tp": 4, "ep": 16, "sequence_parallel": True, "zero": 3}),
    ("qwen3-30b-a3b", {"dp": 128, "tp": 4, "ep": 8, "zero": 3, "dp_replicate": 4, "cp": 2}),
    ("deepseek-v3", {"dp": 8, "pp": 16, "ep": 64, "tp": 8, "zero": 1, "sequence_parallel": True}),
]


@pytest.mark.parametrize(("name", "fields"), PRESETS)
def test_published_mixtures_are_predicted_end_to_end(name, fields):
    model, fields = pb.model(name), dict(fields)
    if fields.get("pp"):
        fields["stage_layers"] = (3, *[4] * 14, 2)
    framework, recipe = fields.pop("framework", "textbook"), fields.pop("recipe", "bf16-fp32master")
    work = Workload(recompute="full", recipe=recipe)
    s = pb.Scenario(model, work, pb.Layout(**fields), framework=framework)
    found = pb.training_memory(s)
    inside = sum(row["bytes"] for row in found.terms if row["term"] not in ("context", "reserved_unused"))
    assert inside == found.peak_bytes
    held = [pb.program(s, rank=s.layout.rank(pp=stage)).memory().state for stage in range(s.layout.pp)]
    if fields.get("zero") == 3:
        expected = 16 * model.parameters / (s.layout.shard_ranks * s.layout.tp)
        assert sum(held[0].values()) == pytest.approx(expected, rel=0.05)
