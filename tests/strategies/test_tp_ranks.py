"""Tensor parallelism on real ranks, also with sequence parallelism: parity, bytes by hand, planted faults."""

from collections import Counter
from dataclasses import replace

import pytest

from playbook.lessons import source

pytestmark = [pytest.mark.dist, pytest.mark.timeout(120)]

U = 1 * 8 * 24 * 4
"""FP32 residual stream of the tiny model: one sequence of 8 tokens, 24 features, 768 bytes."""
LOGITS = 1 * 8 * 132 * 4
NORM = 24 * 4

FIXED = {"sequence": 8, "micro_batch": 1, "repeats": 1}


def payloads(run, rank=0):
    table = run.traffic[run.traffic["rank"] == rank]
    return dict(zip(table["op"], table["payload_bytes"], strict=True))


@pytest.mark.parametrize("by", ["hand", "library"])
@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_two_ranks_compute_what_one_process_does(two, tiny, by, sequence_parallel):
    run = two.submit("tp", by=by, model=tiny, sequence_parallel=sequence_parallel, microbatches=2, **FIXED)
    for value in run.result(60).values:
        assert value["parity"]["ok"]
        assert max(value["parity"][f"{part}_error"] for part in ("loss", "grad", "step")) <= 1e-12


@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_four_ranks_copy_two_key_value_heads(four, tiny, sequence_parallel):
    run = four.submit("tp", model=tiny, parity="model", sequence_parallel=sequence_parallel, **FIXED).result(
        60
    )
    assert run.values[0]["parity"]["ok"]


@pytest.mark.parametrize("by", ["hand", "library"])
@pytest.mark.parametrize("changes", [{"tied": True}, {"qkv_bias": True}, {"qk_norm": True}])
def test_other_kinds_of_model_pass_too(two, tiny, by, changes):
    run = two.submit("tp", by=by, model=replace(tiny, **changes), parity="model", **FIXED).result(60)
    assert run.values[0]["parity"]["ok"]


@pytest.mark.parametrize("by", ["hand", "library"])
def test_a_layer_has_four_all_reduces_of_the_residual_stream(two, tiny, by):
    run = two.submit("tp", by=by, model=tiny, parity="off", **FIXED).result(60)
    layers = {
        f"m0/{phase}/layers.{layer}/all_reduce@tp#{k}": U
        for phase in "FB"
        for layer in (0, 1)
        for k in (0, 1)
    }
    ends = {
        "m0/F/embed_tokens/all_reduce@tp#0": U,
        "m0/F/lm_head/all_gather@tp#0": LOGITS,
        "m0/B/lm_head/all_reduce@tp#0": U,
    }
    assert payloads(run) == layers | ends
    # two ranks: 10 all-reduces send what they hold, 768 bytes; the gather sends half of 4 224
    assert run.values[0]["traffic"]["wire_bytes"] == 10 * 768 + 2_112


@pytest.mark.parametrize("by", ["hand", "library"])
def test_sequence_parallelism_halves_every_all_reduce_and_sums_the_norms(two, tiny, by):
    run = two.submit("tp", by=by, model=tiny, parity="off", sequence_parallel=True, **FIXED).result(60)
    sizes = Counter(payloads(run).values())
    # 2 layers x 4 and the 2 ends, each as an all-gather and a reduce-scatter
    assert sizes == {U: 20, LOGITS: 1, NORM: 5}
    assert run.values[0]["traffic"]["calls"] == {"all_gather": 11, "reduce_scatter": 10, "all_reduce": 5}


def test_four_ranks_sum_the_gradients_of_copied_heads(four, tiny):
    run = four.submit("tp", model=tiny, parity="off", **FIXED).result(60)
    # the share of k or v: one head of 8 x 24, 768 bytes; gathered from 4 ranks
    copied = [size for op, size in payloads(run).items() if op.startswith("m0/B/") and "all_gather" in op]
    assert copied == [3_072] * 4
    # all-reduces send 3/2 of 768, gathers 3/4 of 4 224 and 4 x 3 072
    assert run.values[0]["traffic"]["wire_bytes"] == 10 * 1_152 + 3_168 + 4 * 2_304


def test_the_library_would_cut_a_key_value_head(four, tiny):
    with pytest.raises(ValueError, match="use by='hand', which copies heads, or tp=2"):
        four.submit("tp", by="library", model=tiny)


def test_biases_after_a_row_split_product_are_refused_by_hand(two, tiny):
    with pytest.raises(ValueError, match="use by='library'"):
        two.submit("tp", model=replace(tiny, mlp_bias=True))


def test_such_biases_pass_by_library(two, tiny):
    run = two.submit("tp", by="library", model=replace(tiny, mlp_bias=True), parity="model", **FIXED)
    assert run.result(60).values[0]["parity"]["ok"]


@pytest.mark.parametrize("by", ["hand", "library"])
def test_a_rank_holds_half_of_everything_but_the_norms(two, tiny, by):
    run = two.submit("tp", by=by, model=tiny, parity="off", **FIXED).result(60)
    terms = {row["term"]: row["bytes"] for row in run.values[0]["memory"]["terms"]}
    # norms: 5 x 24 elements
    assert terms["parameters"] == 4 * ((17_400 - 120) / 2 + 120)


@pytest.mark.parametrize("by", ["hand", "library"])
def test_recomputed_layers_give_the_same(two, tiny, by):
    run = two.submit("tp", by=by, model=tiny, recompute="full", **FIXED).result(60)
    assert run.values[0]["parity"]["ok"]
    assert [op for op in payloads(run) if op.startswith("m0/R/")]


@pytest.mark.parametrize("fault", ["skipped_collective", "wrong_offset"])
@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_a_planted_fault_fails_the_gate(two, tiny, fault, sequence_parallel):
    run = two.submit("tp", model=tiny, fault=fault, sequence_parallel=sequence_parallel, **FIXED)
    value = run.result(60).values[0]
    assert not value["parity"]["ok"]
    assert value["parity"]["grad_error"] > 1e-3


def test_the_code_by_hand_has_at_most_forty_lines():
    assert source("tp").lines <= 40
    for call in ("dist.all_reduce", "dist.all_gather", "dist.reduce_scatter"):
        assert call in source("tp").text


def difference_of_a_later_stage(model):
    """Of what a stage makes of its share of hidden states, from what one process makes of all."""
    import torch
    import torch.distributed as dist

    from playbook.models.transformer import Transformer, seed_weights
    from playbook.runtime.part import world
    from playbook.strategies.tp.ranks import by_library

    tp, stages = world("cpu", "tp"), [Transformer(model, [1]).double() for _ in range(2)]
    for stage in stages:
        seed_weights(stage, 3)
    hidden = torch.randn(1, 8, model.hidden, generator=torch.Generator().manual_seed(5)).double()
    whole, shared = stages
    part = by_library(shared, tp, sequence_parallel=True)
    logits = part.module(hidden.chunk(dist.get_world_size(), dim=1)[dist.get_rank()])
    return (logits - whole(hidden)).abs().max().item()


def test_a_later_stage_takes_its_share_of_the_sequence_for_that(two, tiny):
    """Positions of all tokens, not of the share's: keys and queries are whole again inside attention."""
    assert max(two.submit(difference_of_a_later_stage, tiny).result(60).values) < 1e-12
