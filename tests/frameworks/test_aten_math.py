from dataclasses import replace

import pytest

import playbook as pb
from playbook.compare import compare
from playbook.frameworks.torch import POLICY
from playbook.program.policy import Sizes
from playbook.spec import Workload, model, recipe

TOY = model("toy-15m")
ALONE = replace(TOY, kv_heads=6, name="toy-6-heads")
"""6 query heads of 64, which share 2 pairs of keys and values, or have one each."""
T, A, K, S = 128, 6, 64, 128


def layer(shape=TOY, name="bf16", **work):
    return POLICY.layer(Sizes.of(shape, Workload(sequence=S, **work), recipe(name)))


def saved(block):
    return {tensor.name: tensor.bytes for tensor in block.tensors if tensor.saved}


@pytest.mark.parametrize(
    ("shape", "keys", "values"), [(TOY, "k scaled", "v heads"), (ALONE, "k flat", "v flat")]
)
def test_the_core_keeps_probabilities_and_what_it_multiplied_in_fp32(shape, keys, values):
    kept = saved(layer(shape, attention="math"))
    assert kept["probabilities"] == 4 * A * S * S
    assert kept["q flat"] == kept[keys] == kept[values] == 4 * T * A * K
    assert kept["o"] == 2 * T * A * K  # narrowed again
    assert not {"q", "k", "v", "log-sum-exp"} & set(kept)


def test_flash_keeps_rotated_heads_and_a_sum_a_row():
    kept = saved(layer())
    assert kept["log-sum-exp"] == 4 * T * A
    assert "probabilities" not in kept
    assert {"q", "k", "v", "o"} <= set(kept)


@pytest.mark.parametrize(
    ("shape", "name", "kernels", "expected"),
    [
        (TOY, "fp32", "cuda", True),  # neither fused kernel takes grouped heads in FP32
        (ALONE, "fp32", "cuda", False),
        (TOY, "bf16", "cuda", False),
        (TOY, "fp32", "cpu", False),
    ],
)
def test_cuda_has_no_fused_kernel_for_grouped_heads_in_fp32(shape, name, kernels, expected):
    assert ("probabilities" in saved(layer(shape, name, kernels=kernels))) is expected


def test_products_cost_as_much_as_flashs_without_its_second_time_forward():
    def flops(block):
        mine = [op for op in (*block.forward, *block.backward) if op.owner == "self_attn"]
        return sum(op.flops for op in mine)

    one = 2 * A * S * S * K
    assert flops(layer(attention="math")) == 6 * one
    assert flops(layer()) == 7 * one


@pytest.mark.parametrize(
    ("shape", "layout", "work"),
    [
        (ALONE, {}, {"recipe": "fp32", "kernels": "cpu"}),
        (TOY, {"tp": 2}, {"recipe": "bf16", "recompute": "full"}),
    ],
    ids=["FP32 by head", "grouped BF16, tensor parallel, recomputed"],
)
def test_every_row_and_the_peak_are_those_of_real_code(shape, layout, work):
    workload = pb.Workload(sequence=256, attention="math", **work)
    s = pb.Scenario(shape, workload, pb.Layout(**layout), framework="torch")
    predicted, traced = pb.training_memory(s), pb.trace(s)
    found = compare(predicted, traced)
    assert found.match_rate == 1
    assert predicted.instant == traced.instant
    assert predicted.peak_bytes == pytest.approx(traced.peak_bytes, rel=5e-4)
