"""Fully sharded data parallelism on real ranks: parity, bytes counted by hand, planted faults."""

from dataclasses import replace

import pytest

from playbook.lessons import source

pytestmark = [pytest.mark.dist, pytest.mark.timeout(120)]

LAYER_BYTES = 5_520 * 4
ROOT_BYTES = (2 * 3_168 + 24) * 4
"""FP32 weights of one layer of the tiny model, and of its ends."""

FIXED = {"sequence": 8, "micro_batch": 1, "repeats": 1}


def payloads(run, rank=0):
    table = run.traffic[run.traffic["rank"] == rank]
    return dict(zip(table["op"], table["payload_bytes"], strict=True))


@pytest.mark.parametrize("by", ["hand", "library"])
@pytest.mark.parametrize("reshard", [True, False])
def test_two_ranks_compute_what_one_process_does(two, tiny, by, reshard):
    run = two.submit("fsdp2", by=by, model=tiny, reshard=reshard, **FIXED).result(60)
    for value in run.values:
        assert value["parity"]["ok"]
        assert max(value["parity"][f"{part}_error"] for part in ("loss", "grad", "step")) <= 1e-12


@pytest.mark.parametrize("by", ["hand", "library"])
def test_an_attention_core_needs_no_weights_and_runs_again_by_hand_too(two, tiny, by):
    run = two.submit("fsdp2", by=by, model=tiny, recompute="selective", microbatches=2, **FIXED).result(60)
    for value in run.values:
        assert value["parity"]["ok"]
        assert max(value["parity"][f"{part}_error"] for part in ("loss", "grad", "step")) <= 1e-12


@pytest.mark.parametrize("by", ["hand", "library"])
def test_rows_need_not_divide_among_four_ranks(four, odd, by):
    run = four.submit("fsdp2", by=by, model=odd, parity="model", microbatches=2, **FIXED).result(60)
    assert run.values[0]["parity"]["ok"]


@pytest.mark.parametrize("by", ["hand", "library"])
def test_a_tied_table_is_one_weight(two, odd, by):
    run = two.submit("fsdp2", by=by, model=replace(odd, tied=True), parity="model", **FIXED).result(60)
    assert run.values[0]["parity"]["ok"]


@pytest.mark.parametrize("by", ["hand", "library"])
def test_every_unit_is_gathered_twice_and_reduced_once(two, tiny, by):
    run = two.submit("fsdp2", by=by, model=tiny, parity="off", **FIXED).result(60)
    layers = {f"layers.{i}": LAYER_BYTES for i in (0, 1)}
    assert payloads(run) == {
        f"m0/{phase}/{unit}/{op}@dp#0": size
        for phase, op in (("F", "all_gather"), ("B", "all_gather"), ("B", "reduce_scatter"))
        for unit, size in {"": ROOT_BYTES, **layers}.items()
    }
    # 3 x 69 600, half of it on the wire of two ranks
    assert run.values[0]["traffic"]["payload_bytes"] == 208_800
    assert run.values[0]["traffic"]["wire_bytes"] == 104_400.0


@pytest.mark.parametrize("by", ["hand", "library"])
def test_kept_weights_are_not_gathered_again(two, tiny, by):
    run = two.submit("fsdp2", by=by, model=tiny, parity="off", reshard=False, **FIXED).result(60)
    assert run.values[0]["traffic"]["calls"] == {"all_gather": 3, "reduce_scatter": 3}
    assert run.values[0]["traffic"]["payload_bytes"] == 139_200


def test_four_ranks_send_three_quarters(four, tiny):
    run = four.submit("fsdp2", model=tiny, parity="off", **FIXED).result(60)
    assert [value["traffic"]["wire_bytes"] for value in run.values] == [156_600.0] * 4


@pytest.mark.parametrize("by", ["hand", "library"])
def test_padding_travels_too(two, odd, by):
    run = two.submit("fsdp2", by=by, model=odd, parity="off", **FIXED).result(60)
    # hidden 21, ffn 43, vocabulary 131 on two ranks: q 32 x 21, k, v 16 x 21, o 22 x 32, gate, up 44 x 21,
    # down 22 x 43, norms 22 each = 672 + 2 x 336 + 704 + 2 x 924 + 946 + 44 = 4 886 elements
    assert payloads(run)["m0/F/layers.0/all_gather@dp#0"] == 4 * 4_886
    # table and head 132 x 21 each, norm 22
    assert payloads(run)["m0/F//all_gather@dp#0"] == 4 * (2 * 2_772 + 22)


@pytest.mark.parametrize("by", ["hand", "library"])
def test_a_rank_keeps_its_share_of_the_weights(four, tiny, by):
    run = four.submit("fsdp2", by=by, model=tiny, parity="off", **FIXED).result(60)
    for value in run.values:
        terms = {row["term"]: row["bytes"] for row in value["memory"]["terms"]}
        assert terms["parameters"] == 17_400 * 4 / 4
        assert sum(terms.values()) == value["memory"]["peak_bytes"]


def test_the_library_computes_in_bf16_and_reduces_in_fp32(two, tiny):
    run = two.submit("fsdp2", by="library", model=tiny, parity="off", recipe="fsdp2-mixed", **FIXED).result(
        60
    )
    found = payloads(run)
    assert found["m0/F/layers.0/all_gather@dp#0"] == LAYER_BYTES / 2
    assert found["m0/B/layers.0/reduce_scatter@dp#0"] == LAYER_BYTES


@pytest.mark.parametrize("fault", ["skipped_collective", "wrong_offset"])
def test_a_planted_fault_fails_the_gate(two, tiny, fault):
    value = two.submit("fsdp2", model=tiny, fault=fault, **FIXED).result(60).values[0]
    assert not value["parity"]["ok"]
    assert value["parity"]["grad_error"] > 0.1


def test_the_code_by_hand_has_at_most_forty_lines():
    assert source("fsdp2").lines <= 40
    assert "dist.all_gather_into_tensor" in source("fsdp2").text
    assert "dist.reduce_scatter_tensor" in source("fsdp2").text


@pytest.mark.parametrize("by", ["hand", "library"])
def test_weights_that_are_whole_for_a_while_are_a_term_of_their_own(two, tiny, by):
    many_tokens = {"sequence": 64, "micro_batch": 8, "repeats": 1}
    run = two.submit("fsdp2", by=by, model=tiny, parity="off", reshard=False, **many_tokens).result(60)
    terms = {row["term"]: row["bytes"] for row in run.values[0]["memory"]["terms"]}
    # kept from forward on, so they are all there at the peak, in the backward of the loss
    assert terms["unsharded"] == 2 * LAYER_BYTES + ROOT_BYTES
    assert terms["parameters"] == 17_400 * 4 / 2


def test_mixed_precision_is_measured_but_the_gate_computes_in_its_own_dtype(two, tiny):
    run = two.submit("fsdp2", by="library", model=tiny, recipe="fsdp2-mixed", **FIXED).result(60)
    assert run.values[0]["parity"]["ok"]
    assert run.values[0]["parity"]["dtype"] == "fp64"
    gathers = [size for op, size in payloads(run).items() if "layers.0/all_gather@dp" in op]
    assert gathers
    assert set(gathers) == {LAYER_BYTES // 2}
