import csv
import json
from pathlib import Path

import pytest

import playbook as pb
from playbook.spec import presets

COUNTS = Path(__file__).parents[1] / "data" / "parameters.csv"


def counted():
    with COUNTS.open() as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("row", counted(), ids=lambda row: row["config"])
def test_parameter_counts_equal_those_of_the_built_models(row):
    model = pb.model(row["config"])
    assert model.family == row["model_type"]
    assert model.parameters == int(row["total_params"])
    assert model.active == int(row["active"])
    assert model.active_without_input_embedding == int(row["active_without_input_embedding"])
    assert (model.embedding, str(model.tied)) == (int(row["embedding_table"]), row["tied"])
    assert model.balancing_numbers == int(row["router_balancing_numbers"])
    assert model.kv_bytes_per_token(2) == int(row["kv_bytes_per_token_bf16"])


@pytest.mark.parametrize("name", presets.names("models"))
def test_every_preset_is_understood_whole_and_names_its_source(name):
    model = pb.model(name)
    assert model.name == name
    assert model.ignored_keys == ()
    assert len(model.source) > 20


def test_the_toy_model_has_about_fifteen_million_parameters():
    # A layer is 384*384 + 2*384*128 + 384*384 + 3*384*1024 + 2*384 = 1 573 632, ends 2*8192*384 + 384.
    assert pb.model("toy-15m").layer_parameters == 1_573_632
    assert pb.model("toy-15m").parameters == 6 * 1_573_632 + 2 * 3_145_728 + 384


def test_llama_70b_caches_327680_bytes_a_token_and_10_74_gb_at_32768():
    model = pb.model("llama-3.1-70b")
    assert model.kv_bytes_per_token(2) == 327_680
    assert round(model.kv_bytes_per_token(2) * 32_768 / 1e9, 2) == 10.74


def test_block_parameters_carry_hugging_face_names_shapes_and_the_split_dim():
    block = {p.name: (p.shape, p.tp_dim) for p in pb.model("llama-3.1-8b").block_parameters()}
    assert block == {
        "input_layernorm.weight": ((4096,), None),
        "self_attn.q_proj.weight": ((4096, 4096), 0),
        "self_attn.k_proj.weight": ((1024, 4096), 0),
        "self_attn.v_proj.weight": ((1024, 4096), 0),
        "self_attn.o_proj.weight": ((4096, 4096), 1),
        "post_attention_layernorm.weight": ((4096,), None),
        "mlp.gate_proj.weight": ((14336, 4096), 0),
        "mlp.up_proj.weight": ((14336, 4096), 0),
        "mlp.down_proj.weight": ((4096, 14336), 1),
    }


def test_a_bias_is_split_only_where_output_features_are():
    block = {p.name: p.tp_dim for p in pb.model("gpt2").block_parameters()}
    assert block["self_attn.q_proj.bias"] == 0
    assert block["self_attn.o_proj.bias"] is None
    assert block["mlp.up_proj.bias"] == 0
    assert block["mlp.down_proj.bias"] is None


def test_a_tied_head_has_no_weight_of_its_own():
    assert [p.name for p in pb.model("llama-3.2-1b").head_parameters()] == ["norm.weight"]
    assert [p.name for p in pb.model("llama-3.1-8b").head_parameters()] == ["norm.weight", "lm_head.weight"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("llama-3.1-8b", ()),
        ("qwen3-8b", ()),
        ("mistral-7b-v0.1", ()),
        ("phi-3-mini-4k", ()),
        ("gpt2", ("LayerNorm", "learned positions", "a feed-forward part without gate", "GELU")),
        ("mixtral-8x7b", ("routed experts",)),
        ("deepseek-v3", ("routed experts", "latent attention", "multi-token modules")),
        ("gemma-2-2b", ("GELU", "norms before and behind each part")),
        ("olmo-2-7b", ("norms behind each part only", "norms over all heads together")),
        ("gpt-oss-120b", ("routed experts", "attention sinks")),
    ],
)
def test_what_makes_another_kind_than_llama_is_said_in_words(name, words):
    assert pb.model(name).unlike_llama == words


def test_a_model_with_all_parts_becomes_plain_data_and_back():
    model = pb.model("deepseek-v3")
    assert pb.Model(**json.loads(json.dumps(model.to_dict()))) == model


def test_names_ignore_case():
    assert pb.model("LLaMA-3.1-70B") == pb.model("llama-3.1-70b")


def test_an_unknown_name_lists_the_presets():
    with pytest.raises(
        ValueError, match="'llama-9' is neither a preset nor a file; presets are deepseek-v2.*toy-15m"
    ):
        pb.model("llama-9")


def test_a_path_that_does_not_exist_is_named():
    with pytest.raises(ValueError, match="model file '/nowhere/config.json' does not exist"):
        pb.model("/nowhere/config.json")


def test_something_else_is_a_type_error():
    with pytest.raises(TypeError, match="must be a preset's name"):
        pb.model(70)  # type: ignore[arg-type]


SIZES = {
    "name": "m",
    "family": "llama",
    "layers": 2,
    "hidden": 8,
    "heads": 4,
    "kv_heads": 2,
    "head_dim": 2,
    "ffn": 16,
    "vocabulary": 32,
    "max_sequence": 64,
}


@pytest.mark.parametrize(
    ("changed", "error", "text"),
    [
        ({"layers": 0}, ValueError, "layers=0 must be at least 1"),
        ({"hidden": 8.0}, TypeError, "hidden=8.0 must be a whole number"),
        ({"kv_heads": 3}, ValueError, "kv_heads=3 does not divide heads=4; use one of 1, 2, 4"),
        ({"family": "rnn"}, ValueError, "family='rnn' is not known; valid are llama"),
        ({"norm": "batch"}, ValueError, "norm='batch' is not known; valid are rms, layer"),
        ({"tied": 1}, TypeError, "tied=1 must be True or False"),
        ({"window": 0}, ValueError, "window=0 must be at least 1"),
        ({"full_layers": (1,)}, ValueError, "window=None; give the window's tokens"),
        ({"window": 4, "full_layers": (2,)}, ValueError, "full_layers has layer 2 of 2 layers"),
        ({"qk_norm": "some"}, ValueError, "qk_norm='some' is not known; valid are head, full"),
        ({"activation": "relu"}, ValueError, "activation='relu' is not known; valid are silu, gelu"),
        ({"sandwich": True, "post_norm": True}, ValueError, "exclude each other"),
        ({"moe": 8}, TypeError, "moe=8 must be a Moe"),
        (
            {"mla": {"query_rank": None, "kv_rank": 4, "nope_dim": 2, "rope_dim": 2, "value_dim": 2}},
            ValueError,
            "head_dim=2 but mla has nope_dim \\+ rope_dim = 4; use head_dim=4",
        ),
        ({"norm_epsilon": 0.0}, ValueError, "norm_epsilon=0.0 must be above 0"),
    ],
)
def test_bad_sizes_are_refused_with_value_and_rule(changed, error, text):
    with pytest.raises(error, match=text):
        pb.Model(**{**SIZES, **changed})


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("meta-llama/Llama-3.1-8B", "does not exist; did you mean the preset llama-3.1-8b?"),
        ("lama-3.1-8b", "neither a preset nor a file; did you mean the preset llama-3.1-8b"),
        ("nobody/nothing-like-it", "does not exist; give the path of a Hugging Face config.json"),
    ],
)
def test_a_name_like_a_preset_is_answered_with_the_preset_alone(name, told):
    with pytest.raises(ValueError) as refused:
        pb.model(name)
    assert told in str(refused.value)
    assert "deepseek" not in str(refused.value)
