"""Costs of a layer, by hand and against the step that the layers make up."""

from dataclasses import replace

import pytest

import playbook as pb
from playbook.predict.layer_costs import layer_costs
from playbook.predict.rates import rates_of
from tests.shapes import SMALL, scenario_of

TOKENS = 32
LAYER = 64 * 64 + 2 * 64 * 32 + 64 * 64 + 3 * 64 * 96 + 2 * 64  # 30 848
TABLE, LAST_NORM = 128 * 64, 64


def test_the_model_is_told_from_end_to_end_in_order_of_depth():
    names = [cost.name for cost in layer_costs(scenario_of())]
    assert names == ["embedding", "layers.0", "layers.1", "layers.2", "layers.3", "head"]


def test_state_is_sixteen_bytes_a_parameter():
    costs = {cost.name: cost.state_bytes for cost in layer_costs(scenario_of())}
    assert costs["embedding"] == 16 * TABLE
    assert costs["layers.2"] == 16 * LAYER
    assert costs["head"] == 16 * (TABLE + LAST_NORM)


@pytest.mark.parametrize("framework", ["textbook", "torch"])
@pytest.mark.parametrize("zero", [0, 1, 3])
def test_shared_state_is_divided_as_the_zero_stage_says(framework, zero):
    costs = {
        cost.name: cost.state_bytes
        for cost in layer_costs(scenario_of(framework, dp=2, zero=zero, recipe="fp32"))
    }
    # FP32: 4 parameter, 4 gradient, 8 moments; DDP's buckets are a second copy of the gradients.
    whole = {0: 16, 1: 12, 3: 8}[zero] + (4 if framework == "torch" and zero < 3 else 0)
    assert costs["layers.1"] == whole * LAYER


def test_activations_are_what_the_papers_count():
    attention = 2 * 64 + 2 * 64 + 2 * 64 + 2 * 2 * 32 + 4 * 4 + 2 * 64
    per_layer = TOKENS * (attention + 2 * 64 + 2 * 64 + 3 * 2 * 96)
    found = {cost.name: cost.activation_bytes for cost in layer_costs(scenario_of())}
    assert found["layers.0"] == per_layer
    assert found["head"] == TOKENS * (2 * 64 + 2 * 64 + 4 * 128)


def test_checkpointing_keeps_the_input_and_adds_a_forward_to_the_backward_for_inputs():
    plain, full = (layer_costs(scenario_of(recompute=mode))[1] for mode in ("none", "full"))
    assert full.activation_bytes == TOKENS * 2 * 64
    # The second forward hands nothing to the next layer, so its last sum moves less.
    assert full.backward_input_s == pytest.approx(plain.backward_input_s + plain.forward_s, rel=0.02)
    assert full.backward_weight_s == plain.backward_weight_s


def test_seconds_of_products_are_their_flops_over_the_rate():
    # One product for the head's weight: 2 * 32 tokens * 64 * 128; every other row of W moves no bytes here.
    s = scenario_of()
    head = layer_costs(s)[-1]
    assert head.backward_weight_s == pytest.approx(2 * TOKENS * 64 * 128 / rates_of(s).flops_per_s)


def test_costs_do_not_depend_on_the_cut_they_are_used_for():
    one, four = (layer_costs(scenario_of(pp=pp)) for pp in (1, 4))
    assert one == four


@pytest.mark.parametrize("framework", ["textbook", "torch", "transformers"])
def test_layers_add_up_to_the_compute_of_the_step(framework):
    mixed = framework == "transformers"
    s = scenario_of(framework, recipe="fsdp2-mixed" if mixed else "fp32", zero=3 if mixed else 0)
    costs = layer_costs(s)
    timeline = pb.program(s).timeline()
    compute = timeline.duration_s[(timeline.program.microbatch >= 0) & ~timeline.communicates].sum()
    assert sum(cost.seconds for cost in costs) == pytest.approx(compute, rel=0.02)


def test_a_tied_head_holds_a_copy_of_the_table():
    costs = {
        cost.name: cost.state_bytes for cost in layer_costs(scenario_of(model=replace(SMALL, tied=True)))
    }
    assert costs["head"] == 16 * (TABLE + LAST_NORM)
