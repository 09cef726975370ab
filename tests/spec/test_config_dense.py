import pytest

import playbook as pb

SIZES = {
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 100,
    "max_position_embeddings": 256,
}


def read(kind, **changed):
    return pb.model({"model_type": kind, **SIZES, **changed})


def test_gemma_2_slides_in_every_other_layer_and_has_gelu_and_four_norms():
    model = read("gemma2", head_dim=16)
    assert model.windows == (4096, None, 4096, None)
    assert (model.activation, model.sandwich, model.tied, model.gated) == ("gelu", True, True, True)


def test_both_names_of_gemmas_window_must_agree():
    assert read("gemma2", sliding_window=8, sliding_window_size=8).window == 8
    with pytest.raises(ValueError, match="sliding_window_size=9 but sliding_window=8 means the same"):
        read("gemma2", sliding_window=8, sliding_window_size=9)


def test_gemma_3_slides_in_five_of_six_layers():
    model = read("gemma3_text", num_hidden_layers=7, sliding_window=32)
    assert model.windows == (32, 32, 32, 32, 32, None, 32)
    assert (model.qk_norm, model.head_dim) == (True, 256)


def test_gemma_3_files_leave_out_heads_and_vocabulary():
    # The text part of the published 4B file has little more than these keys.
    text = {"model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240}
    keys = {"num_hidden_layers": 34, "sliding_window": 1024, "rope_scaling": {"factor": 8.0}}
    model = pb.model({**text, **keys})
    assert model.parameters == pb.model("gemma-3-4b-text").parameters
    assert model.ignored_keys == ("rope_scaling",)


def test_the_text_part_of_a_model_that_sees_is_read_and_the_rest_reported():
    text = {"model_type": "gemma3_text", **SIZES}
    model = pb.model({"model_type": "gemma3", "text_config": text, "vision_config": {}, "eos_token_id": 1})
    assert model.parameters == read("gemma3_text").parameters
    assert model.ignored_keys == ("vision_config",)


def test_a_tie_outside_the_text_part_counts_and_must_not_contradict():
    text = {"model_type": "gemma3_text", **SIZES}
    outer = {"model_type": "gemma3", "text_config": text, "tie_word_embeddings": False}
    assert pb.model(outer).tied is False
    text["tie_word_embeddings"] = True
    with pytest.raises(ValueError, match="tie_word_embeddings=False but text_config says otherwise"):
        pb.model(outer)


def test_softcapping_is_reported_since_no_number_has_it():
    assert read("gemma2", final_logit_softcapping=30.0).ignored_keys == ("final_logit_softcapping",)
    assert read("gemma2", final_logit_softcapping=None).ignored_keys == ()


def test_olmo_2_norms_behind_and_over_all_heads():
    model = read("olmo2")
    assert (model.post_norm, model.qk_norm) == (True, "full")


def test_phi_3_has_no_window_unless_given_and_reports_partial_rotation():
    assert read("phi3").windows == (None,) * 4
    assert read("phi3", sliding_window=9).windows == (9,) * 4
    assert read("phi3", partial_rotary_factor=0.75).ignored_keys == ("partial_rotary_factor",)


def test_layer_types_are_believed_where_the_family_has_them():
    kinds = ["full_attention", "sliding_attention", "full_attention", "full_attention"]
    keys = {"use_sliding_window": True, "sliding_window": 8, "layer_types": kinds}
    assert read("qwen3", **keys).windows == (None, 8, None, None)


@pytest.mark.parametrize(
    ("kind", "changed", "text"),
    [
        ("gemma2", {"layer_types": ["full_attention"]}, "layer_types has 1 entries but num_hidden_layers=4"),
        ("gemma2", {"layer_types": ["global"] * 4}, "layer_types has 'global' but read are full_attention"),
        (
            "qwen2",
            {"layer_types": ["sliding_attention"] * 4},
            "layer_types has 'sliding_attention' but no window is given",
        ),
        (
            "gemma3_text",
            {"sliding_window_pattern": 2, "layer_types": ["full_attention"] * 4},
            "sliding_window_pattern=2 but layer_types says otherwise",
        ),
        (
            "gemma3_text",
            {"layer_types": ["sliding_attention"] * 2 + ["chunked_attention"] * 2},
            "layer_types has sliding and chunked layers but one kind of window",
        ),
        ("smollm3", {"use_sliding_window": True}, "use_sliding_window=True but windows of this family"),
    ],
)
def test_values_that_contradict_are_refused(kind, changed, text):
    with pytest.raises(ValueError, match=text):
        read(kind, **changed)


def test_a_feed_forward_function_is_read_where_it_is_silu_or_gelu():
    assert read("llama", hidden_act="gelu").activation == "gelu"
    assert read("gemma", hidden_act="gelu", hidden_activation=None).activation == "gelu"
    assert read("gemma2", hidden_activation="relu").ignored_keys == ("hidden_activation",)


SWITCHED_ON = {"use_sliding_window": True, "max_window_layers": 2}
WINDOWS = [
    ("gemma2", {}, (4096, None, 4096, None)),
    ("gemma3_text", {}, (4096, 4096, 4096, 4096)),
    ("olmo3", {}, (4096, 4096, 4096, None)),
    ("mistral", {}, (4096,) * 4),
    ("ministral", {}, (4096,) * 4),
    ("qwen2", SWITCHED_ON, (None, None, 4096, 4096)),
    ("qwen3", SWITCHED_ON, (None, None, 4096, 4096)),
]
"""Family, further keys, and the window of each of four layers where the file has no `sliding_window`, by the
configuration classes of transformers 5.24; null leaves `sliding_window` None in all of them."""


@pytest.mark.parametrize(("kind", "more", "absent"), WINDOWS)
def test_a_window_that_is_null_is_none_and_one_that_is_left_out_is_the_default(kind, more, absent):
    plain = read(kind, sliding_window=None, **more)
    assert plain.windows == (None,) * 4
    assert read(kind, **more).windows == absent
    # Without a window every layer keeps keys and values of all tokens: 2 · 2 heads · dim · 2 bytes each.
    assert pb.kv_cache(plain, 10_000).total_bytes == 10_000 * 4 * 2 * 2 * plain.head_dim * 2


def test_either_name_of_gemmas_window_may_be_null():
    assert read("gemma2", sliding_window_size=None).window is None
    assert read("gemma2", sliding_window=None, sliding_window_size=8).window == 8
