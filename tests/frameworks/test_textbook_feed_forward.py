"""Dense feed-forward parts of any width, by hand."""

import pytest

from playbook.frameworks.textbook_feed_forward import feed_forward
from playbook.program.sizes import Sizes
from playbook.spec import Model, Workload, recipe

T, H, F = 48, 32, 40


def sizes(gated):
    model = Model(
        name="plain",
        family="llama",
        layers=1,
        hidden=H,
        heads=4,
        kv_heads=2,
        head_dim=8,
        ffn=F,
        vocabulary=64,
        max_sequence=64,
        gated=gated,
    )
    return Sizes.of(model, Workload(sequence=16, micro_batch=3), recipe("bf16-fp32master"))


@pytest.mark.parametrize(("gated", "wide"), [(True, 3), (False, 2)])
def test_as_many_wide_tensors_are_kept_as_there_are_products_up_and_one_more(gated, wide):
    kept = [tensor.bytes for tensor in feed_forward(sizes(gated)).tensors if tensor.saved]
    assert kept == [2 * T * F] * wide


@pytest.mark.parametrize(("gated", "products"), [(True, 3), (False, 2)])
def test_each_product_costs_two_flops_a_weight_and_token_and_twice_in_backward(gated, products):
    part = feed_forward(sizes(gated))
    assert sum(row.flops for row in part.forward) == products * 2 * T * H * F
    assert sum(row.flops for row in part.backward) == products * 4 * T * H * F


def test_a_shared_expert_is_the_same_part_of_another_owner_and_width():
    part = feed_forward(sizes(True), "mlp.shared_experts", 56)
    assert {row.owner.removesuffix("_proj") for row in part.forward} == {
        "mlp.shared_experts",
        *(f"mlp.shared_experts.{name}" for name in ("gate", "up", "down")),
    }
    assert sum(tensor.bytes for tensor in part.tensors if tensor.saved) == 3 * 2 * T * 56
    assert part.junctions[0].input_rows[0] == "mlp.shared_experts.gate_proj/mm#0"
