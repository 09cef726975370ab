import pytest

import playbook as pb
from playbook.predict.kv_pool import pool_bytes
from playbook.units import GIB


def test_vllms_own_subtraction_for_gemma_3_4b():
    # vllm-project/vllm pull 21489, in GiB: total, utilisation, weights, activation, other, graphs
    left = pool_bytes(178.36, 0.9, 8.58, 9.96, 0.07, 0.65)
    assert left == pytest.approx(141.27, abs=0.01)
    assert left == pytest.approx(151_519_866_880 / GIB, rel=0.002)  # what the engine then suggested


def test_vllms_own_subtraction_for_llama_3_8b():
    # vllm-project/vllm pull 10511, in GiB: total, utilisation, weights, activation, other; 53.29 were left.
    assert pool_bytes(79.22, 0.9, 14.96, 1.26, 1.79) == pytest.approx(53.29, abs=0.01)


def test_a_pool_holds_whole_pages():
    cache = pb.kv_cache(pb.model("llama-3.1-8b"), tokens=100)
    pool = cache.pool(10.9 * 16 * 131_072)
    assert (pool.blocks, pool.tokens, pool.longest) == (10, 160, 160)
    assert pool.sequences == 1  # 100 tokens take 7 pages
    assert pool.bytes_per_token == pytest.approx(10.9 * 16 * 131_072 / 160)


def test_replicas_add_up_and_a_copied_cache_does_not():
    model = pb.model("deepseek-v3")
    one, copied, dealt = (pb.kv_cache(model, **how).pool(GIB).tokens for how in ({}, {"tp": 8}, {"dp": 8}))
    assert copied == one
    assert dealt == 8 * one


def test_the_longest_sequence_of_a_hybrid_model_leaves_its_constant():
    cache = pb.kv_cache(pb.model("gpt-oss-120b"), batched=2048)
    pool = cache.pool(cache.sequence_bytes(50_000))
    assert pool.longest == 50_000
    assert cache.sequence_bytes(50_016) > pool.bytes


def test_nothing_fits_an_empty_pool():
    pool = pb.kv_cache(pb.model("llama-3.1-8b")).pool(-5.0)
    assert (pool.blocks, pool.tokens, pool.sequences, pool.longest) == (0, 0, 0, 0)
