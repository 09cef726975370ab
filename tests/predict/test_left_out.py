"""What a model has and no prediction counts stands in the note of each, by one rule."""

import pytest

import playbook as pb
from playbook.predict.left_out import left_out
from playbook.runtime.trace_scope import check_traceable
from playbook.units import THIN

LOAD = pb.Serving(prompt=64, output=8, concurrency=1)
SMALL = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "vocab_size": 256,
    "max_position_embeddings": 128,
    "num_key_value_head": 2,
}
"""The last key lacks its s."""
UNREAD = (
    "not understood, and without a part in these numbers: "
    "num_key_value_head (did you mean num_key_value_heads?)"
)


def predictions(model, **degrees):
    s = pb.Scenario(model, pb.Workload(sequence=64), pb.Layout(**degrees))
    serving = pb.Layout(tp=degrees.get("dp", 1))
    return {
        "memory": pb.training_memory(s),
        "fit": pb.fit(s, "micro_batch"),
        "fit of an engine": pb.fit(s, "sequence", serving=LOAD),
        "explain": pb.explain_allocation("1MiB", s),
        "kv": pb.kv_cache(model, 64),
        "inference": pb.inference_memory(model, LOAD, serving),
    }


def test_keys_that_were_not_understood_stand_in_the_note_of_every_prediction():
    for name, found in predictions(pb.model(SMALL)).items():
        assert found.note.endswith(UNREAD), (name, found.note)
        assert found.note.count("not understood") == 1, name
        assert UNREAD in repr(found), name


def test_a_prediction_without_anything_left_out_does_not_say_so():
    whole = pb.model({key: value for key, value in SMALL.items() if key != "num_key_value_head"})
    assert left_out(whole) == ""
    for name, found in predictions(whole).items():
        assert "these numbers" not in found.note, name


def test_multi_token_modules_stand_in_the_note_of_every_prediction():
    # tests/data/cases_params.json has the count of the module's own weights
    words = f"1 multi-token module of 11{THIN}610{THIN}067{THIN}968 parameters has no part in these numbers"
    model = pb.model("deepseek-v3")
    s = pb.Scenario(model, pb.Workload(sequence=64), pb.Layout(dp=64, ep=64, zero=3))
    found = {
        "memory": pb.training_memory(s),
        "fit": pb.fit(s),
        "explain": pb.explain_allocation("1GiB", s),
        "kv": pb.kv_cache(model, 64),
        "inference": pb.inference_memory(model, LOAD, pb.Layout(tp=8)),
    }
    assert {name: one.note.endswith(words) for name, one in found.items()} == dict.fromkeys(found, True)


def test_several_modules_are_told_in_the_plural():
    words = left_out(pb.Model(**{**pb.model("deepseek-v3").to_dict(), "mtp": 2}))
    assert words.startswith("2 multi-token modules of ")
    assert words.endswith(" parameters each have no part in these numbers")


def test_the_refusal_of_a_trace_names_the_modules():
    s = pb.Scenario(pb.model("deepseek-v3"), pb.Workload(sequence=64), pb.Layout())
    with pytest.raises(ValueError, match="routed experts, latent attention, multi-token modules, which"):
        check_traceable(s)
