import playbook as pb
from playbook.predict.kv_words import kv_note


def test_a_plain_cache_has_nothing_to_mind():
    assert kv_note(pb.kv_cache(pb.model("llama-3.1-8b"), tp=8)) == ""


def test_each_cause_is_named_in_one_sentence():
    hybrid = pb.kv_cache(pb.model("gpt-oss-120b"), 131_072, tp=16, hybrid=False)
    copies, rate, engine = kv_note(hybrid).split("; ")
    assert copies == "the cache is replicated 2 times: 8 key-value heads on tp=16 ranks"
    assert rate.startswith("no one rate per token: a sequence of n > 128 tokens takes")
    assert rate.endswith("36.9\u2009kB · n")
    assert "every layer keeps every token: 2.0 times" in engine


def test_one_kind_of_layers_may_be_copied_alone():
    kinds = [pb.KvLayers(count=8, heads=1, head_dim=512), pb.KvLayers(count=40, heads=8, head_dim=256)]
    assert "the cache of full layers is replicated 8 times: 1 key-value head on" in kv_note(
        pb.kv_cache(kinds, tp=8)
    )


def test_shared_layers_are_counted():
    kinds = [
        pb.KvLayers(count=20, heads=2, head_dim=64),
        pb.KvLayers(count=10, heads=2, head_dim=64, shared=True),
    ]
    assert "10 layers read an earlier layer's cache and take nothing" in kv_note(pb.kv_cache(kinds))
