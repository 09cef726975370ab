"""What a model has and no prediction counts stands in the note of each, by one rule."""

import playbook as pb
from playbook.predict.left_out import left_out

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
