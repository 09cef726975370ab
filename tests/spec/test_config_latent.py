import pytest

import playbook as pb

SIZES = {
    "model_type": "deepseek_v3",
    "hidden_size": 64,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "intermediate_size": 128,
    "vocab_size": 100,
    "max_position_embeddings": 256,
    "n_routed_experts": 6,
    "num_experts_per_tok": 2,
    "n_shared_experts": 2,
    "moe_intermediate_size": 24,
    "first_k_dense_replace": 1,
    "kv_lora_rank": 16,
    "q_lora_rank": None,
    "qk_nope_head_dim": 12,
    "qk_rope_head_dim": 8,
    "v_head_dim": 10,
}


def read(**changed):
    return pb.model({**SIZES, **changed})


def routed(model):
    return [layer for layer in range(model.layers) if model.moe and model.moe.in_layer(layer)]


def test_shared_experts_are_one_part_of_their_widths_together():
    assert read().moe.shared_ffn == 2 * 24
    assert read(n_shared_experts=None).moe.shared_ffn == 0


def test_experts_are_in_layers_whose_number_the_frequency_divides():
    # DeepSeek's own modelling file; the classes of Hugging Face leave the key out.
    assert routed(read()) == [1, 2, 3, 4, 5, 6, 7]
    assert routed(read(moe_layer_freq=3)) == [3, 6]
    assert routed(read(first_k_dense_replace=4, moe_layer_freq=2)) == [4, 6]


def test_a_file_without_experts_is_dense():
    assert read(n_routed_experts=None).moe is None
    assert read(first_k_dense_replace=8).moe is None


def test_queries_have_one_projection_where_the_rank_is_null_and_1536_where_it_is_left_out():
    assert read().mla.query_rank is None
    assert pb.model({key: SIZES[key] for key in SIZES if key != "q_lora_rank"}).mla.query_rank == 1536


def test_head_dims_are_those_of_both_parts_whatever_else_a_file_says():
    assert read(head_dim=8).head_dim == read(qk_head_dim=20).head_dim == 20
    with pytest.raises(
        ValueError, match="head_dim=64 but qk_rope_head_dim=8 and qk_nope_head_dim=12 make it"
    ):
        read(head_dim=64)


def test_fewer_key_value_heads_are_refused():
    with pytest.raises(ValueError, match="num_key_value_heads=2 but latent attention has as many as"):
        read(num_key_value_heads=2)


def test_v3_has_balancing_numbers_and_multi_token_modules_and_v2_has_not():
    model = read(num_nextn_predict_layers=1)
    assert (model.mtp, model.balancing_numbers) == (1, 7 * 6)
    assert read(model_type="deepseek_v2").balancing_numbers == 0


def test_kimi_is_read_as_deepseek_v3():
    assert read(model_type="kimi_k2").parameters == read().parameters


def test_the_published_file_of_deepseek_v3_leaves_only_quantisation_and_rope_scaling_unread():
    more = {
        "aux_loss_alpha": 0.001,
        "ep_size": 1,
        "hidden_act": "silu",
        "moe_layer_freq": 1,
        "n_group": 8,
        "norm_topk_prob": True,
        "quantization_config": {"quant_method": "fp8"},
        "rope_scaling": {"type": "yarn"},
        "routed_scaling_factor": 2.5,
        "scoring_func": "sigmoid",
        "seq_aux": True,
        "topk_method": "noaux_tc",
    }
    assert read(**more).ignored_keys == ("quantization_config", "rope_scaling")
