from dataclasses import replace

import pytest

import playbook as pb
from playbook.spec import Moe


def shapes(weights):
    return {weight.name: (weight.shape, weight.tp_dim) for weight in weights}


def test_latent_attention_squeezes_and_copies_what_it_squeezes_with():
    # DeepSeek-V3: 1536 and 512 + 64 squeezed features, 128 heads of 128 + 64 and values of 128.
    block = shapes(pb.model("deepseek-v3").block_parameters())
    assert {name: block[name] for name in block if "self_attn" in name} == {
        "self_attn.q_a_proj.weight": ((1536, 7168), None),
        "self_attn.q_a_layernorm.weight": ((1536,), None),
        "self_attn.q_b_proj.weight": ((24576, 1536), 0),
        "self_attn.kv_a_proj_with_mqa.weight": ((576, 7168), None),
        "self_attn.kv_a_layernorm.weight": ((512,), None),
        "self_attn.kv_b_proj.weight": ((32768, 512), 0),
        "self_attn.o_proj.weight": ((7168, 16384), 1),
    }


def test_without_a_query_rank_there_is_one_query_projection():
    block = shapes(pb.model("deepseek-v2-lite").block_parameters())
    assert block["self_attn.q_proj.weight"] == ((3072, 2048), 0)
    assert not any("q_a" in name for name in block)


def test_routed_experts_are_one_tensor_a_projection_and_the_router_is_copied():
    weights = pb.model("deepseek-v3").block_parameters(3)
    block = shapes(weights)
    assert {name: block[name] for name in block if "mlp" in name} == {
        "mlp.gate.weight": ((256, 7168), None),
        "mlp.experts.gate_proj": ((256, 2048, 7168), 1),
        "mlp.experts.up_proj": ((256, 2048, 7168), 1),
        "mlp.experts.down_proj": ((256, 7168, 2048), 2),
        "mlp.shared_experts.gate_proj.weight": ((2048, 7168), 0),
        "mlp.shared_experts.up_proj.weight": ((2048, 7168), 0),
        "mlp.shared_experts.down_proj.weight": ((7168, 2048), 1),
    }
    assert [weight.name for weight in weights if weight.expert] == [
        "mlp.experts.gate_proj",
        "mlp.experts.up_proj",
        "mlp.experts.down_proj",
    ]


def test_experts_may_have_biases_and_attention_sinks():
    block = shapes(pb.model("gpt-oss-120b").block_parameters())
    assert block["mlp.experts.gate_proj_bias"] == ((128, 2880), 1)
    assert block["mlp.experts.down_proj_bias"] == ((128, 2880), None)
    assert block["mlp.gate.bias"] == ((128,), None)
    assert block["self_attn.sinks"] == ((64,), 0)


def test_a_gate_of_one_output_may_scale_the_shared_experts():
    block = shapes(pb.model("qwen2-57b-a14b").block_parameters())
    assert block["mlp.shared_expert_gate.weight"] == ((1, 3584), None)
    assert block["mlp.shared_experts.up_proj.weight"] == ((20480, 3584), 0)


@pytest.mark.parametrize(
    ("name", "norms"),
    [
        ("llama-3.1-8b", ["input", "post_attention"]),
        ("gemma-2-9b", ["input", "post_attention", "pre_feedforward", "post_feedforward"]),
        ("olmo-2-7b", ["post_attention", "post_feedforward"]),
    ],
)
def test_norms_stand_before_behind_or_on_both_sides(name, norms):
    names = [weight.name for weight in pb.model(name).block_parameters()]
    assert [found for found in names if "layernorm" in found] == [
        f"{norm}_layernorm.weight" for norm in norms
    ]


def test_norms_of_queries_and_keys_are_of_one_head_or_of_all():
    olmo, gemma = (shapes(pb.model(name).block_parameters()) for name in ("olmo-2-7b", "gemma-3-1b"))
    assert olmo["self_attn.k_norm.weight"] == ((4096,), None)
    assert gemma["self_attn.q_norm.weight"] == gemma["self_attn.k_norm.weight"] == ((256,), None)


def test_plain_norms_have_no_weights():
    model = replace(pb.model("toy-15m"), norm="plain")
    assert not any("norm" in weight.name for weight in model.block_parameters())
    assert [weight.name for weight in model.head_parameters()] == ["lm_head.weight"]


def test_a_multi_token_module_is_a_layer_a_projection_and_three_norms():
    # A layer with experts has 11 507 286 016 (README_WEIGHTS: 11.5B), the projection 7168 · 14336.
    weights = pb.model("deepseek-v3").mtp_parameters()
    assert shapes(weights)["eh_proj.weight"] == ((7168, 14336), None)
    assert sum(weight.numel for weight in weights) == 11_507_286_016 + 102_760_448 + 21_504


@pytest.mark.parametrize("name", ["deepseek-v3", "gemma-3-1b", "gpt-oss-120b", "gpt2", "llama-4-scout-text"])
def test_every_weight_is_named_once_and_can_be_split_where_it_says(name):
    model = pb.model(name)
    for kind in model.kinds:
        names = [weight.name for weight in model.block_parameters(kind)]
        assert len(names) == len(set(names))
        assert all(w.tp_dim is None or w.tp_dim < len(w.shape) for w in model.block_parameters(kind))
        assert all(w.shape[0] == model.moe.experts for w in model.block_parameters(kind) if w.expert)


def test_experts_without_gate_have_two_projections():
    model = replace(pb.model("toy-15m"), gated=False, moe=Moe(experts=4, active=1, ffn=8))
    names = [weight.name for weight in model.block_parameters() if weight.expert]
    assert names == ["mlp.experts.up_proj", "mlp.experts.down_proj"]
