"""A layer with experts against bytes worked out by hand."""

import pytest

from playbook.frameworks.textbook import POLICY
from playbook.program.polynomial import constant
from playbook.program.sizes import Sizes
from playbook.spec import Model, Moe, Workload, recipe

T, H, E, K, F = 64, 48, 4, 2, 40
"""Tokens, features, experts, experts a token, features of an expert."""


def mixture(shared=0, gate=False, **flags):
    experts = Moe(experts=E, active=K, ffn=F, shared_ffn=shared, shared_gate=gate, **flags)
    return Model(
        name="mixture",
        family="mixtral",
        layers=2,
        hidden=H,
        heads=6,
        kv_heads=2,
        head_dim=8,
        ffn=96,
        vocabulary=64,
        max_sequence=64,
        moe=experts,
    )


def layer_of(model, number=0, symbolic=False):
    work = Workload(sequence=32, micro_batch=2)
    return POLICY.layer(Sizes.of(model, work, recipe("bf16-fp32master"), symbolic), number)


def kept(model, number=0):
    return {tensor.name: tensor.bytes for tensor in layer_of(model, number).tensors if tensor.saved}


ATTENTION = 2 * 2 * T * H + 2 * T * (2 * 6 * 8 + 2 * 2 * 8) + 4 * T * 6
"""Input and norm output, q and the core's output, k and v, log-sum-exps."""

MIDDLE = 2 * 2 * T * H
"""Residual stream in the middle, and the output of the second norm."""


def test_routed_experts_keep_router_dispatched_inner_and_combined_tokens():
    """4·T·E and 4·n of the router; B·n·h in, 3·B·n·e inside, B·n·h out, with n = T·K."""
    n = T * K
    routed = 4 * T * E + 4 * n + 2 * n * H + 3 * 2 * n * F + 2 * n * H
    assert sum(kept(mixture()).values()) == ATTENTION + MIDDLE + routed


def test_a_shared_expert_keeps_what_a_dense_part_of_its_width_keeps():
    assert sum(kept(mixture(shared=56)).values()) - sum(kept(mixture()).values()) == 3 * 2 * T * 56


def test_the_gate_of_a_shared_expert_keeps_itself_and_what_it_scales():
    with_gate, without = (sum(kept(mixture(shared=56, gate=flag)).values()) for flag in (True, False))
    assert with_gate - without == 2 * T * (1 + H)


def test_a_dense_layer_of_the_same_model_keeps_three_times_its_features():
    assert sum(kept(mixture(first_dense=1)).values()) == ATTENTION + MIDDLE + 3 * 2 * T * 96
    assert sum(kept(mixture(first_dense=1), 1).values()) == sum(kept(mixture()).values())


def test_products_of_the_experts_count_the_active_ones():
    """Forward: 6·T·K·h·e FLOPs inside the experts and 2·T·h·E of the router; backward twice that."""
    block = layer_of(mixture())
    for letter, times in (("F", 1), ("B", 2)):
        rows = [row for row in block.segment(letter) if row.owner.startswith("mlp")]
        assert sum(row.flops for row in rows) == times * (6 * T * K * H * F + 2 * T * H * E)


def test_weights_of_experts_are_marked_and_have_the_expert_first():
    marked = {w.name: w.shape for w in layer_of(mixture()).weights if w.expert}
    assert marked == {
        "mlp.experts.gate_proj": (E, F, H),
        "mlp.experts.up_proj": (E, F, H),
        "mlp.experts.down_proj": (E, H, F),
    }


def test_biases_of_experts_and_router_are_complete_with_their_products():
    block = layer_of(mixture(router_bias=True, expert_bias=True))
    ready = {weight.name: weight.ready.row for weight in block.weights}
    assert ready["mlp.experts.down_proj_bias"] == "mlp.experts.down_proj/mm#1"
    assert ready["mlp.gate.bias"] == "mlp.gate/mm#1"


def test_tokens_leave_and_return_around_the_experts_in_both_directions():
    block = layer_of(mixture())
    ahead = [row.name for row in block.forward if row.region in ("routed", "expert")]
    back = [row.name for row in block.backward if row.region in ("routed", "expert")]
    assert (ahead[0], ahead[-1]) == ("mlp/dispatch#0", "mlp/combine#0")
    assert (back[0], back[-1]) == ("mlp/combine_backward#0", "mlp/dispatch_backward#0")


@pytest.mark.parametrize("shared", [0, 56])
def test_symbols_give_the_bytes_and_flops_of_numbers(shared):
    model = mixture(shared=shared, gate=shared > 0)
    values = {"b": 2, "s": 32, "h": H, "a": 6, "g": 2, "k": 8, "f": 96, "E": E, "K": K, "e": F, "w": shared}
    numbers, symbols = layer_of(model), layer_of(model, symbolic=True)
    assert [t.bytes for t in numbers.tensors] == [constant(t.bytes).at(values) for t in symbols.tensors]
    assert [w.numel for w in numbers.weights] == [constant(w.numel).at(values) for w in symbols.weights]
    assert [r.flops for r in numbers.backward] == [constant(r.flops).at(values) for r in symbols.backward]


def test_formulas_name_routed_tokens_by_their_sizes():
    sizes = {tensor.name: str(tensor.bytes) for tensor in layer_of(mixture(), symbolic=True).tensors}
    assert sizes["expert activation"] == "2·b·s·K·e"
    assert sizes["router scores"] == "4·b·s·E"
