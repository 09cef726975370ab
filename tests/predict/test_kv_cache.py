from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import playbook as pb
from playbook.units import GIB

LLAMA = pb.model("llama-3.1-70b")


def test_requirement_m7_llama_70b():
    cache = pb.kv_cache(LLAMA, tokens=32_768)
    assert cache.bytes_per_token == 327_680
    assert cache.total_bytes == cache.bytes_per_rank == cache.engine_bytes == 10_737_418_240


@pytest.mark.parametrize(
    ("name", "bytes_per_token"),
    [("deepseek-v3", 70_272), ("qwen2.5-72b", 327_680), ("llama-3.1-405b", 516_096)],
)
def test_the_table_of_deepseeks_isca_paper(name, bytes_per_token):
    assert pb.kv_cache(pb.model(name)).bytes_per_token == bytes_per_token


@pytest.mark.parametrize(
    ("name", "published"),
    [("llama-3.1-8b", (0.125, 1.95, 15.62)), ("llama-3.1-70b", (0.313, 4.88, 39.06))],
)
def test_hugging_faces_table_for_llama_3_1_in_gib(name, published):
    lengths = (1024, 16_000, 128_000)  # its columns say 1k, 16k, 128k, and count k both ways
    found = [pb.kv_cache(pb.model(name), tokens, dtype="fp16").total_bytes / GIB for tokens in lengths]
    assert found == [pytest.approx(gib, abs=0.006) for gib in published]


def test_hugging_faces_row_for_405b_counts_twice_the_heads():
    model = pb.model("llama-3.1-405b")
    assert round(pb.kv_cache(model, 128_000).total_bytes / GIB, 2) == 61.52
    assert round(pb.kv_cache(replace(model, kv_heads=16), 128_000).total_bytes / GIB, 2) == 123.05


def test_opt_13b_of_the_paged_attention_paper():
    cache = pb.kv_cache([pb.KvLayers(count=40, heads=40, head_dim=128)], tokens=2048, dtype="fp16")
    assert cache.bytes_per_token == 819_200  # the paper's 800 KB
    assert cache.total_bytes == 1_677_721_600  # its "up to 1.6 GB"


def test_every_rank_keeps_one_head_where_there_are_more_ranks_than_heads():
    eight, sixteen = (pb.kv_cache(LLAMA, tokens=32_768, tp=tp) for tp in (8, 16))
    assert eight.bytes_per_rank == sixteen.bytes_per_rank == 1_342_177_280
    assert (eight.copies, sixteen.copies) == (1, 2)
    assert "replicated 2 times: 8 key-value heads on tp=16 ranks" in sixteen.note


def test_a_latent_cache_is_whole_on_each_rank_and_the_note_says_why():
    cache = pb.kv_cache(pb.model("deepseek-v3"), tokens=32_768, tp=8)
    assert cache.bytes_per_rank == cache.total_bytes == 32_768 * 70_272
    assert "replicated 8 times: one latent head cannot be split" in cache.note


def test_windows_limit_the_tokens_and_an_engine_takes_pages_for_a_step_more():
    cache = pb.kv_cache(pb.model("gpt-oss-120b"), tokens=131_072)
    assert (cache.slope_bytes, cache.constant_bytes) == (36_864, 18 * 128 * 2048)
    assert cache.total_bytes == 4_836_556_800
    assert cache.engine_bytes == 18 * 2048 * 131_072 + 18 * 521 * 16 * 2048
    uniform = replace(cache, hybrid=False)
    assert uniform.engine_bytes == 9_663_676_416
    assert "without a hybrid allocator every layer keeps every token: 2.0 times the ideal" in uniform.note


def test_groups_of_layers_are_filled_up():
    cache = pb.kv_cache(pb.model("gemma-3-27b-text"), tokens=131_072)  # 10 full layers, 52 with a window
    page = 16 * 2 * 16 * 128 * 2
    assert cache.padding_bytes == 8 * (576 + 1) * page  # ceil(9215 / 16) + 1 pages each
    assert "fills its groups of layers up" in cache.note
    assert pb.kv_cache(pb.model("gpt-oss-120b")).padding_bytes == 0


def test_a_model_of_windows_only_stops_growing():
    cache = pb.kv_cache(pb.model("mistral-7b-v0.1"), tokens=32_768)
    assert cache.total_bytes == cache.constant_bytes == 4096 * 131_072
    assert "however long" in cache.note
    with pytest.raises(ValueError, match="every length fits"):
        _ = cache.pool(10 * GIB).longest


def test_a_part_filled_page_is_waste():
    cache = pb.kv_cache(LLAMA, tokens=33, sequences=10)
    assert cache.engine_bytes == 10 * 48 * 327_680
    assert cache.paging_bytes == 10 * 15 * 327_680


def test_sequences_are_dealt_out_and_long_ones_cut():
    cache = pb.kv_cache(LLAMA, tokens=1600, sequences=10, dp=4, cp=2)
    assert cache.rank_sequences == 3
    assert cache.bytes_per_rank == 3 * 800 * 327_680
    assert cache.total_bytes == 10 * 1600 * 327_680


def test_the_table_has_a_row_for_each_kind_of_layers():
    table = pb.kv_cache(pb.model("gemma-3-27b-text"), tokens=32_768).table
    assert list(table["kind"]) == ["full", "window"]
    assert list(table["layers"]) == [10, 52]
    assert list(table["tokens_kept"]) == [32_768, 1024]


def test_heads_that_no_degree_divides_are_refused():
    refusal = "tp=3 neither divides 8 key-value heads nor is a multiple of them; use tp=1, 2, 4, 8 or a mult"
    with pytest.raises(ValueError, match=refusal):
        pb.kv_cache(LLAMA, tp=3)


def test_a_sequence_ends_where_learned_positions_do():
    small = pb.model("gpt2")
    assert pb.kv_cache(small, tokens=1024).tokens == 1024
    with pytest.raises(ValueError, match="tokens=1025 but gpt2 has 1024 learned positions; use tokens=1024"):
        pb.kv_cache(small, tokens=1025)


def test_the_text_says_what_it_is():
    text = repr(pb.kv_cache(LLAMA, tokens=32_768, tp=16))
    assert "328\u2009kB a token" in text
    assert "10.7\u2009GB one copy" in text


@settings(max_examples=30, deadline=None)
@given(
    tokens=st.integers(1, 100_000),
    sequences=st.integers(1, 9),
    tp=st.sampled_from([1, 2, 4, 8, 16]),
    name=st.sampled_from(["llama-3.1-8b", "gpt-oss-120b", "deepseek-v3", "llama-4-scout-text"]),
)
def test_pages_never_take_less_than_the_ideal_nor_more_than_every_token(tokens, sequences, tp, name):
    model = pb.model(name)
    cache = pb.kv_cache(model, tokens, sequences, tp=tp)
    full = replace(cache, hybrid=False)
    assert cache.bytes_per_rank <= cache.engine_bytes <= full.engine_bytes
    assert cache.total_bytes <= tp * cache.bytes_per_rank
    pool = cache.pool(cache.engine_bytes)
    assert pool.sequences >= sequences
    if cache.slope_bytes:
        assert pool.longest >= tokens
