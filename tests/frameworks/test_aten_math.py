from dataclasses import replace

import pytest

import playbook as pb
from playbook.compare import compare
from playbook.frameworks.torch import POLICY
from playbook.program.policy import Sizes
from playbook.program.recompute import recompute
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


def kept_for_the_core(shape=TOY, name="bf16", **work):
    """What forward keeps otherwise, and what it keeps if the core runs again, and nothing else."""
    plain = layer(shape, name, **work)
    (block,) = recompute((plain,), "selective", stops_early=True)
    before, after = saved(plain), saved(block)
    return (
        {name: size for name, size in before.items() if name not in after},
        {name: size for name, size in after.items() if name not in before},
    )


def test_a_core_that_runs_again_keeps_queries_keys_and_values_in_place_of_scores():
    gone, kept = kept_for_the_core(attention="math")
    heads, keys = T * A * K, T * 2 * K
    assert gone == {
        "probabilities": 4 * A * S * S,
        **dict.fromkeys(("q flat", "k scaled", "v heads"), 4 * heads),
    }
    assert kept == {"q": 2 * heads, "k": 2 * keys, "v": 2 * keys}


def test_under_flash_only_the_sums_go_while_a_second_output_is_there_in_backward():
    gone, kept = kept_for_the_core()
    assert (gone, kept) == ({"log-sum-exp": 4 * T * A}, {})
    (block,) = recompute((layer(),), "selective", stops_early=True)
    again = {tensor.name: tensor for tensor in block.tensors if tensor.name.startswith("R:")}
    assert {name: tensor.bytes for name, tensor in again.items()} == {
        "R:o": 2 * T * A * K,
        "R:log-sum-exp": 4 * T * A,
    }
    assert {tensor.bwd_end.row for tensor in again.values()} == {"self_attn/sdpa_backward#0"}
    (first,) = (tensor for tensor in block.tensors if tensor.name == "o")
    assert first.bwd_end.row == "self_attn.o_proj/mm#1"


@pytest.mark.parametrize(
    ("work", "before", "last"),
    [
        ({}, "self_attn/sdpa_backward#0", "R:self_attn/sdpa#0"),
        ({"attention": "math"}, "self_attn/bmm#0", "R:self_attn/_to_copy#3"),
    ],
)
def test_the_core_runs_again_where_its_backward_needs_it_and_not_to_the_end(work, before, last):
    (block,) = recompute((layer(**work),), "selective", stops_early=True)
    names = [op.name for op in block.backward]
    again = [op.name for op in block.backward if op.phase == "R"]
    assert (
        again[-1] == last
    )  # the narrowed probabilities; the last product saves what it reads before it runs
    assert names[names.index(last) + 1] == before


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
        (TOY, {"dp": 4, "zero": 3}, {"recipe": "fsdp2-mixed", "micro_batch": 2, "recompute": "selective"}),
    ],
    ids=[
        "FP32 by head",
        "grouped BF16, tensor parallel, recomputed",
        "grouped BF16, shards, core recomputed",
    ],
)
def test_every_row_and_the_peak_are_those_of_real_code(shape, layout, work):
    workload = pb.Workload(sequence=256, attention="math", **work)
    s = pb.Scenario(shape, workload, pb.Layout(**layout), framework="torch")
    predicted, traced = pb.training_memory(s), pb.trace(s)
    found = compare(predicted, traced)
    assert found.match_rate == 1
    assert predicted.instant == traced.instant
    assert predicted.peak_bytes == pytest.approx(traced.peak_bytes, rel=5e-4)
