import pytest

import playbook as pb
from playbook.spec import Mla, Moe
from playbook.spec.moe import part

SIZES = {"experts": 8, "active": 2, "ffn": 16}


def layers_with_experts(layers=8, **changed):
    moe = Moe(**{**SIZES, **changed})
    return [layer for layer in range(layers) if moe.in_layer(layer)]


def test_every_layer_has_experts_unless_told():
    assert layers_with_experts() == list(range(8))


def test_the_first_layers_may_be_dense():
    assert layers_with_experts(first_dense=3) == [3, 4, 5, 6, 7]


def test_every_second_layer_counts_from_the_end_of_the_dense_start():
    assert layers_with_experts(every=2) == [1, 3, 5, 7]
    assert layers_with_experts(every=2, first_dense=2) == [3, 5, 7]


def test_layers_may_be_dense_by_number():
    assert layers_with_experts(dense_layers=(0, 5)) == [1, 2, 3, 4, 6, 7]


def test_latent_attention_has_heads_of_both_parts():
    assert Mla(query_rank=None, kv_rank=16, nope_dim=12, rope_dim=8, value_dim=10).head_dim == 20


def test_a_part_may_be_given_as_its_plain_data():
    assert part(Moe, SIZES) == Moe(**SIZES)
    assert part(Moe, None) is None
    with pytest.raises(ValueError, match="Moe has no field 'width'; its fields are experts"):
        part(Moe, {**SIZES, "width": 3})
    with pytest.raises(TypeError, match="moe=8 must be a Moe, its fields as a dict, or None"):
        part(Moe, 8)  # type: ignore[arg-type]


def test_a_scenario_with_experts_and_latents_comes_back_from_json():
    scenario = pb.Scenario(pb.model("deepseek-v2-lite"), pb.Workload(), pb.Layout())
    again = pb.Scenario.from_json(scenario.to_json())
    assert again.model == scenario.model
    assert isinstance(again.model.moe, Moe)
    assert isinstance(again.model.mla, Mla)


@pytest.mark.parametrize(
    ("changed", "error", "text"),
    [
        ({"experts": 0}, ValueError, "experts=0 must be at least 1"),
        ({"active": 9}, ValueError, "active=9 of experts=8: a token cannot use more.*use active=8 or less"),
        ({"every": 0}, ValueError, "every=0 must be at least 1"),
        ({"first_dense": -1}, ValueError, "first_dense=-1 must be at least 0"),
        ({"router_bias": 1}, TypeError, "router_bias=1 must be True or False"),
        ({"shared_gate": True}, ValueError, "shared_gate=True but shared_ffn=0"),
        ({"dense_layers": (-1,)}, ValueError, "dense_layers=-1 must be at least 0"),
    ],
)
def test_bad_experts_are_refused_with_value_and_rule(changed, error, text):
    with pytest.raises(error, match=text):
        Moe(**{**SIZES, **changed})


def test_bad_latents_are_refused():
    with pytest.raises(ValueError, match="kv_rank=0 must be at least 1"):
        Mla(query_rank=None, kv_rank=0, nope_dim=1, rope_dim=1, value_dim=1)
