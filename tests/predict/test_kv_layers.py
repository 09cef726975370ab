import pytest

import playbook as pb
from playbook.predict.kv_layers import as_layers, kv_layers
from playbook.spec.formats import cache_format

BF16 = cache_format("bf16")
SLIDING = pb.KvLayers(count=18, heads=8, head_dim=64, window=128)


def test_a_models_layers_are_grouped_by_their_window():
    full, sliding = kv_layers(pb.model("gpt-oss-120b"))
    assert (full.kind, full.count, full.window) == ("full", 18, None)
    assert (sliding.kind, sliding.count, sliding.window) == ("window", 18, 128)
    assert full.token_bytes(BF16) == 2 * 8 * 64 * 2


def test_a_stage_has_its_own_layers():
    model = pb.model("gemma-3-27b-text")  # five windowed layers, then a full one
    assert [(kind.kind, kind.count) for kind in kv_layers(model, 0, 5)] == [("window", 5)]
    assert [(kind.kind, kind.count) for kind in kv_layers(model, 0, 12)] == [("full", 2), ("window", 10)]


def test_chunks_are_told_from_windows():
    kinds = {kind.kind: kind for kind in kv_layers(pb.model("llama-4-scout-text"))}
    assert set(kinds) == {"full", "chunk"}
    assert (kinds["chunk"].window, kinds["chunk"].count) == (8192, 36)


def test_a_latent_vector_is_one_head():
    (latent,) = kv_layers(pb.model("deepseek-v3"))
    assert (latent.kind, latent.heads, latent.head_values) == ("latent", 1, 512 + 64)
    assert latent.rank_heads(8) == 1
    assert latent.copies(8) == 8
    assert latent.expanded_values == 128 * (128 + 64 + 128)


def test_vllms_latent_format_takes_656_bytes_a_token_and_layer():
    (latent,) = kv_layers(pb.model("deepseek-v3"))
    assert latent.token_bytes(cache_format("fp8-ds-mla")) == 656  # 512 + 4 scales of 4 bytes + 64 x 2
    with pytest.raises(ValueError, match="stores a latent vector; use fp8 for layers with heads"):
        SLIDING.token_bytes(cache_format("fp8-ds-mla"))


def test_scales_of_heads_are_counted_for_keys_and_values():
    assert SLIDING.token_bytes(cache_format("fp8-per-head")) == 8 * (2 * 64 + 2 * 4)


def test_windowed_pages_hold_the_window_and_the_newest_tokens():
    assert SLIDING.pages(131_072, 16, 8192, hybrid=True) == 520 + 1  # ceil(8319 / 16) + 1
    assert SLIDING.pages(131_072, 16, 8192, hybrid=False) == 8192
    assert SLIDING.pages(64, 16, 8192, hybrid=True) == 4


def test_a_chunk_starts_on_a_page():
    chunk = pb.KvLayers(count=1, heads=8, head_dim=128, window=8192, chunked=True)
    assert chunk.pages(131_072, 16, 8192, hybrid=True) == 1024


def test_layers_that_share_a_cache_take_nothing():
    shared = pb.KvLayers(count=10, heads=8, head_dim=64, shared=True)
    assert (shared.kind, shared.token_bytes(BF16), shared.pages(100, 16, 8, hybrid=True)) == ("shared", 0, 0)


def test_bad_geometry_is_refused():
    with pytest.raises(ValueError, match="chunked=True but window=None"):
        pb.KvLayers(count=1, heads=1, head_dim=64, chunked=True)
    with pytest.raises(ValueError, match="heads=0 must be at least 1"):
        pb.KvLayers(count=1, heads=0, head_dim=64)
    with pytest.raises(TypeError, match="a cache takes a Model or some KvLayers"):
        as_layers([])
