import json

import pytest

import playbook as pb

LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 100,
    "max_position_embeddings": 256,
}
GPT2 = {"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 32, "vocab_size": 100}


def llama(**changed):
    return pb.model({**LLAMA, **changed})


def test_a_file_a_folder_and_a_dict_give_the_same_sizes(tmp_path):
    folder = tmp_path / "my-model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA))
    by_file, by_folder = pb.model(folder / "config.json"), pb.model(str(folder))
    assert by_file == by_folder
    assert by_file.name == "my-model"
    assert by_file.source.endswith("my-model/config.json")
    assert by_file.parameters == llama().parameters


def test_counts_of_a_small_llama_by_hand():
    # q 64*64, k and v 32*64 each, o 64*64, three of 128*64, two norms of 64; both tables 100*64, norm 64.
    assert llama().parameters == 2 * (4096 + 2 * 2048 + 4096 + 3 * 8192 + 128) + 2 * 6400 + 64


def test_attention_bias_of_llama_is_on_all_four_projections():
    assert llama(attention_bias=True).parameters - llama().parameters == 2 * (64 + 32 + 32 + 64)


def test_mlp_bias_is_on_all_three_projections():
    assert llama(mlp_bias=True).parameters - llama().parameters == 2 * (128 + 128 + 64)


def test_head_dim_is_read_and_need_not_be_hidden_over_heads():
    assert llama(head_dim=32).head_dim == 32
    assert llama().head_dim == 16


def test_key_value_heads_left_out_are_as_many_as_heads():
    assert llama(num_key_value_heads=None).kv_heads == 4


def test_qwen2_has_biases_on_queries_keys_and_values_only():
    model = llama(model_type="qwen2")
    assert (model.qkv_bias, model.output_bias, model.mlp_bias) == (True, False, False)


def test_qwen3_norms_queries_and_keys_and_has_heads_of_128_unless_told():
    model = llama(model_type="qwen3")
    assert (model.qk_norm, model.head_dim) == (True, 128)
    assert llama(model_type="qwen3", head_dim=64).head_dim == 64


def test_qwen_windows_count_only_where_they_are_switched_on():
    keys = {"model_type": "qwen2", "sliding_window": 128}
    assert llama(**keys, use_sliding_window=False, max_window_layers=1).window is None
    assert llama(**keys, use_sliding_window=True, max_window_layers=2).window is None
    assert llama(**keys, use_sliding_window=True, max_window_layers=0).window == 128
    some = llama(**keys, use_sliding_window=True, max_window_layers=1)
    assert some.windows == (None, 128)


def test_mistral_has_a_window_unless_it_is_null():
    assert llama(model_type="mistral").window == 4096
    assert llama(model_type="mistral", sliding_window=None).window is None
    assert llama(model_type="mistral", sliding_window=8).window == 8


def test_gpt2_has_learned_positions_biases_a_plain_mlp_and_a_tied_head():
    model = pb.model(GPT2)
    assert (model.positions, model.ffn, model.tied, model.gated, model.norm) == (
        32,
        256,
        True,
        False,
        "layer",
    )
    # Four projections 64*64+64, mlp 64*256+256 and 256*64+64, two norms of 128; tables 132*64, norm 128.
    assert model.parameters == 2 * (4 * 4160 + 16640 + 16448 + 256) + 132 * 64 + 128


def test_gpt2_inner_width_is_read():
    assert pb.model({**GPT2, "n_inner": 100}).ffn == 100


def test_rope_theta_is_read_from_either_place():
    assert llama(rope_theta=5e5).rope_theta == 5e5
    assert llama(rope_parameters={"rope_type": "default", "rope_theta": 1e6}).rope_theta == 1e6


def test_keys_that_are_not_understood_are_reported_and_bookkeeping_is_not():
    model = llama(
        torch_dtype="bfloat16",
        hidden_act="silu",
        attention_dropout=0.0,
        quantization_config={"bits": 4},
        rope_scaling={"factor": 8},
    )
    assert model.ignored_keys == ("quantization_config", "rope_scaling")
    assert llama(hidden_act="relu").ignored_keys == ("hidden_act",)
    assert pb.model({**GPT2, "resid_pdrop": 0.1}).ignored_keys == ("resid_pdrop",)


@pytest.mark.parametrize("key", [key for key in LLAMA if key not in ("model_type", "num_key_value_heads")])
def test_a_missing_key_is_named(key):
    with pytest.raises(ValueError, match=f"llama: key '{key}' is missing; a llama config.json must have it"):
        pb.model({name: value for name, value in LLAMA.items() if name != key})


def test_a_missing_model_type_is_named_with_what_is_read():
    with pytest.raises(
        ValueError, match="key 'model_type' is missing; read are llama, qwen2, qwen3, mistral, gpt2"
    ):
        pb.model({"hidden_size": 64})


@pytest.mark.parametrize("kind", ["mamba2", "bert", "qwen3_next"])
def test_other_kinds_are_refused_by_name(kind):
    with pytest.raises(ValueError, match=f"model_type='{kind}' is not read yet; read are llama"):
        llama(model_type=kind)


def test_a_file_that_is_not_json_is_one_clear_line(tmp_path):
    path = tmp_path / "config.json"
    path.write_text("{ not json")
    with pytest.raises(ValueError, match="is not JSON") as error:
        pb.model(path)
    assert "\n" not in str(error.value)
    path.write_text("[1, 2]")
    with pytest.raises(ValueError, match="holds a list, not an object"):
        pb.model(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="is not JSON"):
        pb.model(path)


@pytest.mark.parametrize(
    ("changed", "error", "text"),
    [
        ({"hidden_size": "64"}, TypeError, "llama: hidden_size='64' must be a whole number"),
        ({"num_attention_heads": 0}, ValueError, "llama: num_attention_heads=0 must be at least 1"),
        ({"num_attention_heads": 5}, ValueError, "hidden_size=64 is not a multiple of num_attention_heads=5"),
    ],
)
def test_sizes_that_make_no_model_are_refused(changed, error, text):
    with pytest.raises(error, match=text):
        llama(**changed)


@pytest.mark.parametrize("kind", ["llama", "smollm3"])  # presets of the first kind, none of the second
def test_keys_that_are_not_read_are_named_with_what_they_may_mean(kind):
    keys = {"model_type": kind, "num_key_value_head": 2, "tie_word_embedding": True, "colour": "red"}
    sizes = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 96}
    found = pb.model({**keys, **sizes, "vocab_size": 100, "max_position_embeddings": 512})
    assert found.ignored_keys == ("colour", "num_key_value_head", "tie_word_embedding")
    assert found.unread == (
        "not understood, and without a part in these numbers: colour, num_key_value_head (did you mean "
        "num_key_value_heads?), tie_word_embedding (did you mean tie_word_embeddings?)"
    )
    assert not pb.model("toy-15m").unread


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (
            {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}},
            "rope_scaling={'rope_type': 'llama3', 'factor': 8.0}",
        ),
        (
            {"hidden_act": "relu", "hidden_sizes": 3},
            "hidden_act='relu', hidden_sizes (did you mean hidden_size?)",
        ),
        (
            {"rope_scaling": {"long_factor": [1.0] * 48}},
            "rope_scaling={'long_factor': [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.…",
        ),
    ],
)
def test_a_known_key_whose_value_is_not_understood_says_the_value(changed, words):
    assert llama(**changed).unread == f"not understood, and without a part in these numbers: {words}"
