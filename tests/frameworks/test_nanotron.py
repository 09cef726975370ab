"""nanotron's accounting: what a layer keeps, gradients and buckets, uneven stages, refusals."""

from dataclasses import replace

import pytest

import playbook as pb
from playbook.frameworks.nanotron import POLICY, stage_layers
from playbook.predict.stages import blocks_of, context
from playbook.program.policy import Sizes
from playbook.spec import Model, recipe

H, A, K, F, V, L = 2048, 32, 64, 8192, 131072, 16


def model(layers=L, kv_heads=A):
    shape = {"hidden": H, "heads": A, "kv_heads": kv_heads, "head_dim": K, "ffn": F, "vocabulary": V}
    return Model(name="1b", family="llama", layers=layers, tied=True, max_sequence=4096, **shape)


def scenario(framework="nanotron", recipe="bf16-fp32grad", layers=L, **layout):
    work = pb.Workload(sequence=4096, micro_batch=1, recipe=recipe)
    return pb.Scenario(model(layers), work, pb.Layout(**layout), framework=framework)


def test_a_layer_keeps_eight_h_and_twelve_heads_and_eight_ffn_bytes_a_token():
    work = pb.Workload(sequence=4096, micro_batch=1, recipe="bf16-fp32grad")
    block = POLICY.layer(Sizes.of(model(), work, recipe("bf16-fp32grad")))
    kept = sum(tensor.bytes for tensor in block.tensors if tensor.saved)
    assert kept == 4096 * (8 * H + 12 * A * K + 8 * F + 4 * A)


def test_a_layer_of_grouped_heads_keeps_no_second_copy_of_keys_and_values():
    work = pb.Workload(sequence=4096, micro_batch=1, recipe="bf16-fp32grad")
    block = POLICY.layer(Sizes.of(model(kv_heads=8), work, recipe("bf16-fp32grad")))
    kept = sum(tensor.bytes for tensor in block.tensors if tensor.saved)
    assert kept == 4096 * (8 * H + 4 * A * K + 4 * 8 * K + 8 * F + 4 * A)


def test_state_is_two_and_four_and_twelve_bytes_of_which_zero_1_shares_twelve():
    numel = pb.training_memory(scenario()).walk.terms["parameters"] // 2
    for ranks in (1, 8):
        terms = pb.training_memory(scenario(dp=ranks, zero=1)).walk.terms
        assert terms["parameters"] == 2 * numel
        assert terms["master_weights"] + terms["optimizer"] == pytest.approx(12 * numel / ranks, rel=1e-6)


def test_buckets_hold_bf16_gradients_where_there_are_several_replicas():
    held = {n: [t for block in blocks(n) for t in block.tensors if t.name == "buckets"] for n in (1, 2)}
    assert held[1] == []
    numel = V * H + L * (4 * H * A * K + 3 * H * F + 2 * H) + H
    assert sum(tensor.bytes for tensor in held[2]) == 2 * numel


def test_zero_1_has_no_buckets_and_gathers_its_weights_as_flat_copies():
    tensors = [tensor for block in blocks(4, zero=1) for tensor in block.tensors]
    numel = V * H + L * (4 * H * A * K + 3 * H * F + 2 * H) + H
    assert [tensor for tensor in tensors if tensor.name == "buckets"] == []
    flat = sum(tensor.bytes for tensor in tensors if tensor.name == "gathered weights")
    assert flat == pytest.approx(2 * numel * (2 + 1 / 4), rel=1e-6)


def blocks(ranks, zero=0):
    s = scenario(dp=ranks, zero=zero)
    return blocks_of(s, 0, context(s))


def test_bf16_gradients_go_when_the_micro_batch_is_over():
    names = [t.name for block in blocks(1) for t in block.tensors if t.name.endswith("half gradient")]
    assert "mlp.down_proj.weight half gradient" in names


def test_stages_are_cut_by_cost_and_the_last_may_have_no_layer():
    # A layer costs 4·2048² + 3·8192·2048 = 67.1 M, the head 131072·2048 = 268.4 M: a quarter of 1342 M is
    # passed with the 5th layer, half of it (671 M) met exactly with the 10th and passed with the 11th.
    assert stage_layers(model(), 4) == (6, 5, 5, 0)
    assert sum(stage_layers(model(), 8)) == L
    assert stage_layers(model(), 1) == (L,)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"zero": 3, "dp": 2}, "zero=3.*use zero=0 or 1"),
        ({"pp": 4, "schedule": "zb-h1"}, "schedule='zb-h1'.*use schedule='1f1b'"),
        ({"recipe": "fp32"}, "recipe='fp32'.*use recipe='bf16-fp32grad'"),
    ],
)
def test_what_nanotron_does_not_do_is_refused_with_what_works(given, words):
    with pytest.raises(ValueError, match=words):
        pb.training_memory(scenario(**given))


def test_fewer_micro_batches_than_stages_less_one_are_refused():
    work = pb.Workload(sequence=4096, micro_batch=1, global_batch=2, recipe="bf16-fp32grad")
    s = pb.Scenario(model(), work, pb.Layout(pp=4), framework="nanotron")
    with pytest.raises(ValueError, match="2 micro-batches with pp=4.*at least pp - 1 = 3"):
        pb.training_memory(s)


@pytest.mark.parametrize(("billions", "without", "with_fp32"), [(1, 16, 20), (7, 112, 140), (70, 1120, 1400)])
def test_sixteen_and_twenty_bytes_a_parameter_as_in_the_playbooks_table(billions, without, with_fp32):
    """The Ultra-Scale Playbook, table of weights, gradients and optimizer state, in GB; without and with FP32
    accumulation, where the BF16 gradients stand beside the FP32 buffer."""
    s = scenario()
    held = pb.training_memory(s).walk.state
    numel = held["parameters"] // 2
    state = sum(held[term] for term in ("parameters", "gradients", "master_weights", "optimizer"))
    half = sum(t.bytes for block in blocks(1) for t in block.tensors if t.name.endswith("half gradient"))
    assert (state + half) / numel * billions == with_fp32
    assert recipe("bf16-fp32master").state_bytes * billions == without


def test_a_vocabulary_is_padded_to_a_multiple_of_tp():
    """The next multiple of 4 behind 32 001 is 32 004; a framework that does not pad refuses it."""
    odd = replace(model(), vocabulary=32_001)
    parts = (pb.Workload(sequence=4096, recipe="bf16-fp32grad"), pb.Layout(tp=4))
    s = pb.Scenario(odd, *parts, framework="nanotron")
    table = next(weight for block in blocks_of(s, 0, context(s)) for weight in block.weights)
    assert table.shape == (32_004 // 4, H)
    with pytest.raises(ValueError, match="tp=4 does not divide vocabulary=32001"):
        pb.Scenario(odd, *parts)
