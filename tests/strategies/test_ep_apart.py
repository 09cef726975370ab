"""Experts on an axis of their own (ep_rule="independent"): the same tokens and other experts on its ranks.

The sums over ep are proved on numbers: halves of a layer's experts, each with its own backward, against
PyTorch's gradients of the whole layer.
"""

from dataclasses import replace

import pytest
import torch

import playbook as pb
from playbook.predict.rates import rates_of
from playbook.predict.stages import context, templates
from playbook.spec import Moe, Workload
from playbook.strategies import plan
from tests.shapes import SMALL, scenario_of

E, K, WIDTH, HIDDEN, TOKENS, LAYERS = 8, 2, 48, 64, 32, 4
MODEL = replace(SMALL, name="small of experts", moe=Moe(experts=E, active=K, ffn=WIDTH))
EXPERTS = LAYERS * E * 3 * HIDDEN * WIDTH
DENSE = MODEL.parameters - EXPERTS
STREAM = 2 * TOKENS * HIDDEN
WEIGHTS = 4 * TOKENS * K


def scenario(**fields):
    return scenario_of("textbook", MODEL, **{"ep_rule": "independent", **fields})


def over_ep(s):
    return pb.traffic(s).select(axis="ep")


@pytest.mark.parametrize(("dp", "ep"), [(1, 2), (2, 4), (4, 8)])
def test_experts_are_shared_among_data_parallel_ranks_and_the_world_is_the_product(dp, ep):
    def state(zero):
        s = scenario(dp=dp, ep=ep, zero=zero)
        assert s.world == dp * ep
        return sum(pb.program(s).memory().state.values())

    mine = EXPERTS // ep
    assert state(0) == 16 * (DENSE + mine)
    assert state(1) == 4 * (DENSE + mine) + 12 * (DENSE + mine) // dp
    assert state(3) == 16 * (DENSE + mine) // dp


def test_with_one_rank_of_experts_both_rules_are_one_program():
    folded = scenario(dp=2, ep_rule="folded")
    assert pb.program(scenario(dp=2)).memory().peak_bytes == pb.program(folded).memory().peak_bytes


def test_no_token_travels_and_three_sums_a_layer_do():
    found = over_ep(scenario(dp=2, ep=4))
    assert found.by_collective == {"all_reduce@ep": LAYERS * (2 * STREAM + WEIGHTS)}
    assert found.wire_bytes == 2 * 3 / 4 * LAYERS * (2 * STREAM + WEIGHTS)
    assert found.table["payload_bytes"].tolist() == [STREAM] * LAYERS + [WEIGHTS, STREAM] * LAYERS


def test_ranks_of_tensor_parallelism_add_up_their_part_of_the_tokens():
    split = over_ep(scenario(tp=2, ep=2, sequence_parallel=True)).table["payload_bytes"]
    assert set(split) == {STREAM // 2, WEIGHTS // 2}
    whole = over_ep(scenario(tp=2, etp=2, ep=2)).table["payload_bytes"]
    assert set(whole) == {STREAM, WEIGHTS}


def test_gradients_of_dense_weights_are_reduced_over_dp_alone():
    alone = pb.traffic(scenario(dp=2, ep=1)).table
    found = pb.traffic(scenario(dp=2, ep=4)).table
    dense = found[(found["axis"] == "dp") & ~found["op"].str.contains("experts")]
    assert dense["payload_bytes"].sum() + 2 * EXPERTS == alone["payload_bytes"].sum()


@pytest.mark.parametrize(
    "fields", [{"ep": 2}, {"dp": 2, "ep": 8}, {"tp": 2, "ep": 2, "sequence_parallel": True}]
)
def test_work_of_experts_is_done_once_and_all_other_work_on_every_rank_of_ep(fields):
    s = scenario(**fields)
    whole = pb.program(scenario(global_batch=s.layout.dp)).flops
    of_experts = s.layout.dp * 3 * LAYERS * 3 * 2 * TOKENS * K * HIDDEN * WIDTH
    assert s.world * pb.program(s).flops == of_experts + s.layout.ep * (whole - of_experts)


def test_activations_of_experts_are_divided_and_no_others():
    def kept(ep):
        return pb.training_memory(scenario(ep=ep, recipe="bf16")).table.set_index("term")["bytes"][
            "activations"
        ]

    # Dispatched and handed back: h features each; gate, up and their product: e each; 4 bytes a weight.
    routed = LAYERS * TOKENS * K * (2 * 2 * HIDDEN + 3 * 2 * WIDTH + 4)
    assert kept(1) - kept(4) == routed * 3 // 4


def test_passes_commute():
    s = scenario(dp=2, cp=2, tp=2, ep=2, sequence_parallel=True, sequence=64)
    ctx = context(s)
    results = []
    for order in (("tp", "cp", "ep"), ("cp", "ep", "tp"), ("ep", "cp", "tp"), ("tp", "ep", "cp")):
        blocks = (templates(s, 0, ctx)[1],)
        for name in order:
            blocks = plan(name).rewrite(blocks, ctx)
        (block,) = blocks
        ops = {op.name: (op.flops, op.payload) for op in (*block.forward, *block.backward)}
        results.append((ops, sorted((t.name, t.bytes) for t in block.tensors), block.weights))
    assert all(result == results[0] for result in results)


def test_a_group_of_an_axis_of_its_own_lies_outside_the_tensor_parallel_ranks():
    """4 x 4 ranks of tp and ep are two nodes of 8; folded, 4 ranks of ep are in one."""
    s = scenario(tp=4, ep=4)
    folded = scenario(tp=4, ep=4, ep_rule="folded")
    network, inside = rates_of(s).links["ep"], rates_of(folded).links["ep"]
    assert network == s.cluster.link(16)
    assert inside == s.cluster.link(4)
    assert network != inside


def test_mixtral_is_predicted_end_to_end():
    """ZeRO-3 on dp=4, ep=8: 16 bytes of each dense parameter over 4, of an expert's over 4 x 8."""
    model = pb.model("mixtral-8x7b")
    layout = pb.Layout(dp=4, ep=8, ep_rule="independent", zero=3)
    found = pb.training_memory(pb.Scenario(model, Workload(recipe="bf16-fp32master"), layout))
    held = found.table.set_index("term")["bytes"]
    experts = 32 * 8 * 3 * 4096 * 14336
    states = ("parameters", "gradients", "optimizer", "master_weights")
    expected = 16 * ((model.parameters - experts) + experts / 8) / 4
    assert sum(held[name] for name in states) == pytest.approx(expected, rel=1e-6)


def test_megatron_refuses_the_rule_it_does_not_have_with_a_dp_that_has_room_for_the_other():
    s = scenario_of("megatron", MODEL, dp=2, ep=8, ep_rule="independent", recipe="bf16-fp32grad")
    with pytest.raises(
        ValueError, match="use ep_rule='folded' with dp a multiple of 8, or framework='textbook'"
    ):
        pb.program(s)
    folded = scenario_of("megatron", MODEL, dp=8, ep=8, recipe="bf16-fp32grad")
    assert pb.program(folded).memory().peak_bytes > 0


def test_who_knows_no_experts_refuses_those_and_not_the_rule():
    for framework in ("nanotron", "torch"):
        s = scenario_of(framework, MODEL, dp=4, ep=2, recipe="bf16")
        with pytest.raises(ValueError, match="model small of experts|expert") as refused:
            pb.program(s)
        assert "ep_rule" not in str(refused.value)


def test_parts_of_an_expert_must_divide_the_other_ranks():
    with pytest.raises(ValueError, match="etp=2 does not divide dp=3 x cp=1 x tp=1 = 3, .* use etp in 1, 3"):
        pb.Layout(dp=3, etp=2, ep=4, ep_rule="independent")


def test_summed_parts_give_the_gradients_of_the_whole_layer():
    torch.manual_seed(5)
    x, router = torch.randn(6, 5, dtype=torch.double), torch.randn(4, 5, dtype=torch.double)
    experts = torch.randn(4, 5, 5, dtype=torch.double)
    given = torch.randn(6, 5, dtype=torch.double)
    inputs = [x, router, experts]
    for tensor in inputs:
        tensor.requires_grad_()

    def weights_of(tokens):
        return torch.softmax(tokens @ router.T, dim=1).topk(2)

    def handed_back(tokens, weights, chosen, mine):
        each = torch.einsum("th,efh->tef", tokens, experts).tanh()
        part = torch.zeros(6, 4, dtype=torch.double).scatter(1, chosen, weights)
        return torch.einsum("te,tef->tf", part[:, mine], each[:, mine])

    weights, chosen = weights_of(x)
    whole = handed_back(x, weights, chosen, slice(0, 4))
    expected = torch.autograd.grad(whole, inputs, given, retain_graph=True)

    outputs, of_weights, of_tokens, of_experts = [], [], [], []
    for mine in (slice(0, 2), slice(2, 4)):
        tokens, scores = x.detach().requires_grad_(), weights.detach().requires_grad_()
        outputs.append(handed_back(tokens, scores, chosen, mine))
        found = torch.autograd.grad(outputs[-1], [tokens, scores, experts], given)
        for sums, gradient in zip((of_tokens, of_weights, of_experts), found, strict=True):
            sums.append(gradient)
    torch.testing.assert_close(sum(outputs), whole)
    through_router = torch.autograd.grad(weights, [x, router], sum(of_weights))
    torch.testing.assert_close(sum(of_tokens) + through_router[0], expected[0])
    torch.testing.assert_close(through_router[1], expected[1])
    for mine, gradient in zip((slice(0, 2), slice(2, 4)), of_experts, strict=True):
        torch.testing.assert_close(gradient[mine], expected[2][mine])
