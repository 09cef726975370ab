from collections import Counter

import pytest

import playbook as pb
from playbook.program.ids import parse

STREAM = 2 * 32 * 64
"""Bytes of the residual stream: 32 tokens of 64 features in BF16."""


def in_layer(s, layer=1, microbatch=0):
    """Count the collectives of one layer and micro-batch, as (phase, operation)."""
    parts = [parse(text) for text in pb.traffic(s).table["op"]]
    mine = [p for p in parts if p.owner == f"layers.{layer}" and p.microbatch == microbatch]
    return Counter((p.phase, p.op) for p in mine if p.axis == "tp")


@pytest.mark.parametrize("framework", ["textbook", "torch"])
def test_a_layer_and_micro_batch_needs_four_all_reduces_of_the_residual_stream(scenario, framework):
    s = scenario(framework, tp=2, global_batch=2, recipe="bf16")
    assert (
        in_layer(s) == in_layer(s, layer=3, microbatch=1) == {("F", "all_reduce"): 2, ("B", "all_reduce"): 2}
    )
    rows = pb.traffic(s).table
    mine = rows[rows["op"].str.contains("layers.") & (rows["axis"] == "tp")]
    assert set(mine["payload_bytes"]) == {STREAM}
    assert len(mine) == 4 * 4 * 2


@pytest.mark.parametrize("framework", ["textbook", "torch"])
def test_a_layers_collectives_belong_to_the_layer(scenario, framework):
    ops = [op for op in pb.traffic(scenario(framework, tp=2, recipe="bf16")).table["op"] if "layers.0" in op]
    assert ops == [f"m0/{phase}/layers.0/all_reduce@tp#{k}" for phase in "FB" for k in (0, 1)]


def test_the_collective_follows_the_row_split_product_and_the_parts_input_gradient(scenario):
    ids = pb.program(scenario(tp=2)).ids()
    before = [ids[place - 1] for place, text in enumerate(ids) if "layers.0/all_reduce" in text]
    assert before == [
        "m0/F/layers.0.self_attn.o_proj/mm#0",
        "m0/F/layers.0.mlp.down_proj/mm#0",
        "m0/B/layers.0.mlp.gate_proj/mm#1",
        "m0/B/layers.0.self_attn.q_proj/mm#1",
    ]


def test_sequence_parallelism_halves_each_all_reduce_in_two(scenario):
    s = scenario("torch", tp=2, sequence_parallel=True, recipe="bf16")
    halves = {
        ("F", "all_gather"): 2,
        ("F", "reduce_scatter"): 2,
        ("B", "all_gather"): 2,
        ("B", "reduce_scatter"): 2,
    }
    assert {key: count for key, count in in_layer(s).items() if key[1] != "all_reduce"} == halves
    plain = pb.traffic(scenario("torch", tp=2, recipe="bf16")).table
    split = pb.traffic(s).table
    in_layers = [rows[rows["op"].str.contains("layers")]["wire_bytes"].sum() for rows in (plain, split)]
    assert in_layers[0] == in_layers[1]


def test_where_the_shard_is_saved_backward_gathers_it_twice_more(scenario):
    found = in_layer(scenario("textbook", tp=2, sequence_parallel=True))
    assert sum(found.values()) == 10
    assert found["B", "all_gather"] == 4


def test_full_recompute_adds_one_all_reduce_in_pytorch_and_two_in_the_textbook(scenario):
    assert sum(in_layer(scenario("torch", tp=2, recompute="full", recipe="bf16")).values()) == 5
    assert sum(in_layer(scenario("textbook", tp=2, recompute="full")).values()) == 6
    assert in_layer(scenario("torch", tp=2, recompute="full", recipe="bf16"))["R", "all_reduce"] == 1


def test_weights_are_split_by_columns_then_rows_and_norms_copied(scenario):
    whole, half = (pb.program(scenario(tp=tp)).memory().state["parameters"] // 2 for tp in (1, 2))
    norms = 4 * 2 * 64 + 64
    assert half - norms == (whole - norms) // 2


def test_key_value_heads_are_copied_where_there_are_more_ranks(scenario):
    two, four = (pb.program(scenario(tp=tp)).memory().state["parameters"] // 2 for tp in (2, 4))
    norms, key_value = 4 * 2 * 64 + 64, 4 * 2 * 64 * 16
    assert four - norms - key_value == (two - norms - key_value) // 2


@pytest.mark.parametrize("tp", [2, 4])
def test_flops_are_divided(scenario, tp):
    whole, share = pb.program(scenario()).flops, pb.program(scenario(tp=tp)).flops
    copied = 0 if tp == 2 else 3 * 4 * 2 * 2 * 32 * 64 * 16
    assert share == (whole - 2 * copied) / tp + copied if tp == 4 else share == whole / tp


@pytest.mark.parametrize("recipe", ["bf16", "fp32"])
def test_w_reads_a_ranks_share_of_the_gradient_of_gathered_logits(scenario, recipe):
    # Traced on tp=2, pp=2 and zb-h1: 256 tokens of 4096 words leave `clone`, (1, 256, 2048), for W.
    s = scenario("torch", tp=2, pp=2, schedule="zb-h1", recipe=recipe, kernels="cpu", global_batch=2)
    program = pb.program(s, rank=2)
    logits = program.memory().terms_at(program.ids().index("m1/W/lm_head/mm#0"))["logits"]
    assert logits == s.recipe.compute_bytes * s.workload.sequence * s.model.vocabulary // 2
