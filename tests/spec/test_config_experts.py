import pytest

import playbook as pb

SIZES = {
    "hidden_size": 64,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 128,
    "vocab_size": 100,
    "max_position_embeddings": 256,
    "num_experts_per_tok": 2,
}
QWEN = {"moe_intermediate_size": 24, "num_experts": 6}


def read(kind, **changed):
    return pb.model({"model_type": kind, **SIZES, **changed})


def routed(model):
    return [layer for layer in range(model.layers) if model.moe and model.moe.in_layer(layer)]


def test_the_experts_of_mixtral_are_as_wide_as_its_feed_forward():
    moe = read("mixtral", num_local_experts=8).moe
    assert (moe.experts, moe.active, moe.ffn, moe.shared_ffn) == (8, 2, 128, 0)


def test_qwen_has_experts_by_step_and_not_where_named():
    assert routed(read("qwen3_moe", **QWEN)) == [0, 1, 2, 3, 4, 5]
    assert routed(read("qwen3_moe", **QWEN, decoder_sparse_step=2)) == [1, 3, 5]
    assert routed(read("qwen3_moe", **QWEN, decoder_sparse_step=2, mlp_only_layers=[3])) == [1, 5]


def test_no_experts_are_a_dense_qwen():
    model = read("qwen3_moe", **{**QWEN, "num_experts": 0}, decoder_sparse_step=1)
    assert (model.moe, model.ignored_keys) == (None, ())


def test_a_layer_that_is_named_dense_must_be_there():
    with pytest.raises(ValueError, match="dense_layers has layer 6 of 6 layers; use numbers from 0 to 5"):
        read("qwen3_moe", **QWEN, mlp_only_layers=[6])


def test_shared_experts_of_qwen_2_stand_behind_a_gate():
    moe = read("qwen2_moe", **QWEN, shared_expert_intermediate_size=40).moe
    assert (moe.shared_ffn, moe.shared_gate) == (40, True)


def test_names_of_one_meaning_must_agree():
    both = {"num_local_experts": 8, "num_experts": 8}
    assert read("mixtral", **both).moe.experts == 8
    with pytest.raises(ValueError, match="num_local_experts=4 but num_experts=8 means the same"):
        read("mixtral", num_local_experts=4, num_experts=8)
    with pytest.raises(ValueError, match="experts_per_token=3 but num_experts_per_tok=2 means the same"):
        read("gpt_oss", num_local_experts=8, experts_per_token=3)


def test_more_active_experts_than_there_are_is_refused():
    with pytest.raises(ValueError, match="active=2 of experts=1"):
        read("mixtral", num_local_experts=1)


def test_gpt_oss_has_sinks_biases_and_a_window_in_every_other_layer():
    model = read("gpt_oss", num_local_experts=8)
    assert model.windows == (128, None) * 3
    assert (model.sinks, model.qkv_bias, model.output_bias) == (True, True, True)
    assert (model.moe.router_bias, model.moe.expert_bias) == (True, True)


def test_llama_4_attends_to_chunks_but_in_every_fourth_layer():
    model = read("llama4_text", num_local_experts=4, attention_chunk_size=32)
    assert model.windows == (32, 32, 32, None, 32, 32)
    assert model.chunked is True
    whole = read("llama4_text", num_local_experts=4, attention_chunk_size=None)
    assert whole.windows == (None,) * 6


def test_layers_of_llama_4_without_experts_have_a_width_of_their_own():
    model = read("llama4_text", num_local_experts=4, interleave_moe_layer_step=2, intermediate_size_mlp=80)
    assert routed(model) == [1, 3, 5]
    assert (model.ffn, model.moe.ffn, model.moe.shared_ffn) == (80, 128, 128)


def test_layers_with_experts_may_be_named():
    assert routed(read("llama4_text", num_local_experts=4, moe_layers=[0, 4])) == [0, 4]
    assert read("llama4_text", num_local_experts=4, moe_layers=[]).moe is None
    with pytest.raises(ValueError, match="interleave_moe_layer_step=2 but moe_layers says otherwise"):
        read("llama4_text", num_local_experts=4, moe_layers=[0], interleave_moe_layer_step=2)


def test_keys_of_routing_change_no_size_and_a_loss_on_the_router_is_reported():
    model = read("mixtral", num_local_experts=8, router_aux_loss_coef=0.02, output_router_logits=True)
    assert model.ignored_keys == ("output_router_logits",)


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        ("mixtral", "num_local_experts"),
        ("gpt_oss", "num_local_experts"),
        ("llama4_text", "num_local_experts"),
        ("qwen3_moe", "num_experts"),
        ("olmoe", "num_experts"),
    ],
)
def test_a_missing_number_of_experts_has_the_name_that_the_familys_files_use(kind, key):
    with pytest.raises(
        ValueError, match=f"{kind}: key '{key}' is missing; a {kind} config.json must have it"
    ):
        read(kind, moe_intermediate_size=24)


@pytest.mark.parametrize(
    ("kind", "absent"),
    [
        ("qwen2_moe", (4096, None, 4096, None, None, None)),
        ("qwen3_moe", (4096,) * 6),
        ("gpt_oss", (128, None, 128, None, 128, None)),
    ],
)
def test_a_window_that_is_null_is_none_and_one_that_is_left_out_is_the_default(kind, absent):
    """By the configuration classes of transformers 5.24."""
    keys = {**QWEN, "shared_expert_intermediate_size": 40, "use_sliding_window": True, "max_window_layers": 4}
    assert read(kind, **keys).windows == absent
    assert read(kind, **keys, sliding_window=None).windows == (None,) * 6
