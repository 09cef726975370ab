"""Users' questions about key-value caches, asked through the public API and the command line.

Questions and answers are those of `tests/data/cases_kv.json`, each with its source; no expected value is
computed here. What a case leaves open is asked with a named assumption, listed in `OPEN`.
"""

import json
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import playbook as pb
from playbook.cli import run_command
from playbook.predict.kv_pool import pool_bytes
from playbook.units import GB, GIB

FILE = Path(__file__).resolve().parents[1] / "data" / "cases_kv.json"
CASES: dict[str, dict[str, Any]] = {case["id"]: case for case in json.loads(FILE.read_text("utf-8"))}
ASKED: set[str] = set()

OPEN = {
    "kv-01": "lengths 20k and 29k are taken as 20 000 and 29 000 tokens",
    "kv-12": "the pool is 814 pages of 16 tokens of the unsharded cache",
    "kv-19": "the hybrid model is gpt-oss-120b at two lengths",
    "kv-20": "the model is gemma-4-31B, as the issue says: 50 layers of 16 heads of 256 with a window of "
    "1024 and 10 of 4 heads of 512; the length is its maximum, 262 144, the step 2048 tokens (A100)",
}
"""What a case does not say, and how it is asked nevertheless."""


def case(number: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Hand a test its case, and note that the case is asked."""
    ASKED.add(number)
    return pytest.mark.parametrize(
        ("given", "expected"), [(CASES[number]["input"], CASES[number]["expected"])]
    )


def command(line: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Run a command with `--json` and return its object."""
    assert run_command(shlex.split(f"{line} --json")) == 0
    return json.loads(capsys.readouterr().out)


def within(expected: float, per_cent: float) -> Any:
    """A number up to a tolerance in per cent."""
    return pytest.approx(expected, rel=per_cent / 100)


def test_every_case_of_the_topic_is_asked() -> None:
    assert len(CASES) == 13
    assert set(CASES) == ASKED
    assert set(OPEN) <= ASKED
    assert all(entry["source"] for entry in CASES.values())


@case("kv-01")
def test_an_engines_log_gives_the_tokens_of_its_pool(given: dict[str, Any], expected: dict[str, Any]) -> None:
    cache = pb.kv_cache(pb.model(given["config"]), tokens=29_000, block=given["block"])
    assert cache.bytes_per_token == expected["bytes_per_token"]
    small, large = (cache.pool(given["kv_gib"][name] * GIB).tokens for name in ("29k", "20k"))
    assert large == within(expected["tokens_from_3.81gib"], 0.3)
    assert small == within(expected["tokens_from_2.89gib"], 0.3)
    assert [large, small] == [within(tokens, 0.3) for tokens in expected["reported_tokens"]]
    assert cache.engine_bytes / GIB == within(expected["need_gib_for_29000"], 0.3)


@case("kv-01")
def test_a_longer_step_makes_the_pool_smaller_as_the_log_says(
    given: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert expected
    profiled = {}
    for tokens in (20_000, 29_000):
        load = pb.Serving(prompt=tokens, output=1, concurrency=1, max_batched_tokens=tokens)
        found = pb.inference_memory(pb.model(given["config"]), load)
        profiled[tokens] = (found.weights_bytes + found.activation_bytes) / GIB
    assert profiled == {20_000: within(17.06, 0.3), 29_000: within(17.98, 0.3)}  # the case's note


@case("kv-04")
def test_a_hybrid_model_has_an_ideal_and_a_uniform_cache(
    given: dict[str, Any], expected: dict[str, Any]
) -> None:
    ideal = pb.kv_cache(pb.model(given["config"]), tokens=131_072)
    uniform = replace(ideal, hybrid=False)
    assert ideal.bytes_per_token == expected["bytes_per_token_uniform"]
    assert ideal.slope_bytes == expected["growth_bytes_per_token_long"]
    assert ideal.total_bytes == expected["bytes_at_131072_hybrid"]
    assert uniform.engine_bytes == expected["bytes_at_131072_uniform"]
    assert ideal.total_bytes < ideal.engine_bytes < uniform.engine_bytes
    tokens = uniform.pool(given["kv_gib"] * GIB).tokens
    assert tokens == within(expected["tokens_uniform"], 0.1)
    assert tokens == within(given["reported_tokens"], 0.1)


@case("kv-06")
def test_kinds_of_layers_have_their_own_heads(given: dict[str, Any], expected: dict[str, Any]) -> None:
    full = pb.KvLayers(
        count=given["full_layers"], heads=given["full_kv_heads"], head_dim=given["full_head_dim"]
    )
    sliding = pb.KvLayers(
        count=given["sliding_layers"],
        heads=given["sliding_kv_heads"],
        head_dim=given["sliding_head_dim"],
        window=1024,
    )
    assert pb.kv_cache([full, sliding]).slope_bytes == expected["growth_bytes_per_token"]
    every = replace(sliding, count=full.count + sliding.count)
    assert pb.kv_cache([every]).bytes_per_token == expected["naive_uniform"]
    mixed = replace(full, heads=sliding.heads)
    assert pb.kv_cache([mixed]).bytes_per_token == expected["wrong_mix"]


@case("kv-07")
def test_block_formats_have_an_overhead(given: dict[str, Any], expected: dict[str, Any]) -> None:
    load = pb.Serving(kv_dtype="bfp8")
    assert load.kv_bytes_per_value == expected["bytes_per_element"]
    found = pb.kv_cache(pb.model(given["config"]), given["tokens"], dtype="bfp8", tp=8, cp=4, hybrid=False)
    assert found.tp * found.cp == given["shards"]
    assert found.engine_bytes / 2**20 == within(expected["mib_per_chip"], 0.1)


@case("kv-09")
def test_a_latent_cache_stands_beside_the_expanded_one(
    given: dict[str, Any], expected: dict[str, Any]
) -> None:
    model = pb.model(given["config"])
    four = pb.kv_cache(model, given["tokens"], dtype="int4")
    sixteen = pb.kv_cache(model, given["tokens"])
    one_layer = pb.kv_cache([replace(four.layers[0], count=1)], given["tokens"], dtype="int4")
    assert one_layer.total_bytes / 2**20 == within(expected["mib_per_layer_4bit"], 0.5)
    assert four.total_bytes / GIB == within(expected["gib_all_layers_4bit"], 0.5)
    assert sixteen.total_bytes / GIB == within(expected["gib_all_layers_16bit"], 0.5)
    assert sixteen.expanded_bytes is not None
    assert sixteen.expanded_bytes / GIB == within(expected["naive_expanded_gib_16bit"], 0.5)


@case("kv-10")
def test_a_latent_head_is_copied_on_every_tensor_parallel_rank(
    given: dict[str, Any], expected: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    gpus = given["gpus"]
    split = command(f"kv --model {given['config']} --tokens 1 --tp {gpus} --block 1", capsys)
    assert split["bytes_per_rank"] == expected["bytes_per_token_per_gpu_tp8"]
    assert split["copies"] == expected["copies_tp8"]
    assert f"replicated {gpus} times: one latent head" in split["note"]
    alone = command(f"kv --model {given['config']} --tokens 1 --dp {gpus}", capsys)
    assert alone["copies"] == expected["copies_dp8"]
    model = pb.model(given["config"])
    capacity = [pb.kv_cache(model, **how).pool(10 * GIB).tokens for how in ({"tp": gpus}, {"dp": gpus})]
    assert capacity[1] == expected["capacity_ratio_dp_over_tp"] * capacity[0]


@case("kv-12")
def test_a_pool_is_sized_with_a_ranks_heads(given: dict[str, Any], expected: dict[str, Any]) -> None:
    model = pb.model(given["config"])
    whole, part = pb.kv_cache(model), pb.kv_cache(model, tp=given["tp"])
    assert whole.bytes_per_token == expected["bytes_per_token_total"]
    assert replace(part, tokens=1).bytes_per_rank == expected["per_rank"]
    pool = part.pool(whole.pool_of(given["blocks_before"]).bytes)
    assert pool.blocks == within(given["blocks_after"], 1)
    assert pool.blocks / given["blocks_before"] == within(expected["ratio"], 1)
    assert replace(part, tokens=pool.tokens).bytes_per_rank <= pool.bytes


@case("kv-14")
def test_both_gpus_hold_cache_and_the_longest_sequence_is_told(
    given: dict[str, Any], expected: dict[str, Any]
) -> None:
    cache = pb.kv_cache(
        pb.model("llama-2-7b"), given["context"], dtype="fp16", tp=given["tp"], block=given["block"]
    )
    assert (cache.layers[0].count, cache.layers[0].heads, cache.layers[0].head_dim) == (32, 32, 128)
    pool = cache.pool_of(given["blocks"])
    assert pool.tokens == pool.longest == expected["tokens"]
    assert replace(cache, tokens=1).bytes_per_rank == expected["bytes_per_token_per_gpu"]
    assert round(pool.bytes / GIB, 2) == expected["pool_gib_per_gpu"]
    assert cache.engine_bytes / GIB == expected["need_gib_per_gpu"]
    assert (pool.sequences > 0) is expected["fits"]


@case("kv-15")
def test_a_model_without_grouped_heads_does_not_fit_its_own_length(
    given: dict[str, Any], expected: dict[str, Any]
) -> None:
    config = {
        "model_type": "qwen2",
        "hidden_size": 5120,
        "intermediate_size": 13_696,
        "vocab_size": 152_064,
        "num_hidden_layers": 40,
        "num_attention_heads": 40,
        "num_key_value_heads": 40,
        "max_position_embeddings": given["len"],
    }
    model, node = pb.model(config), pb.cluster("1x8-h100")
    gpu = replace(node.gpu, memory_bytes=given["gpu_gib"] * GIB)
    load = pb.Serving(
        prompt=given["len"] - 1, output=1, concurrency=1, weights="fp16", kv_dtype="fp16", utilisation=0.95
    )
    assert load.utilisation == given["util"]
    found = pb.inference_memory(model, load, pb.Layout(), replace(node, gpu=gpu))
    assert model.parameters == expected["params"]
    assert found.weights_bytes / GIB == within(expected["weights_gib"], 1)
    assert found.kv_cache.bytes_per_token == expected["bytes_per_token"]
    assert found.kv_cache.total_bytes / GIB == expected["need_gib"]
    left = pool_bytes(gpu.memory_bytes, load.utilisation, found.weights_bytes, 0)
    assert left / GIB == within(expected["left_gib_before_activation"], 1)
    assert found.fits is expected["fits"]
    assert 0 < found.longest_sequence < 5000  # what the case says a good tool tells


@case("kv-16")
def test_a_published_row_counts_the_heads_of_an_older_checkpoint(
    given: dict[str, Any], expected: dict[str, Any]
) -> None:
    model = pb.model(given["config"])
    now = pb.kv_cache(model, given["tokens"]).total_bytes / GIB
    then = pb.kv_cache(replace(model, kv_heads=16), given["tokens"]).total_bytes / GIB
    assert now == within(expected["gib_8_kv_heads"], 0.1) == within(given["user_gb"], 0.1)
    assert then == within(expected["gib_16_kv_heads"], 0.1) == within(given["published_gb"], 0.1)


@case("kv-18")
def test_hand_values_of_two_llamas(given: dict[str, Any], expected: dict[str, Any]) -> None:
    small, large = (pb.kv_cache(pb.model(name), given["tokens"], dtype="fp16") for name in given["models"])
    assert small.bytes_per_token == expected["llama2_7b_bytes_per_token"]
    assert small.total_bytes / GIB == expected["llama2_7b_gib"]
    assert large.total_bytes / GIB == expected["llama70b_gqa_gib"]
    assert large.expanded_bytes is not None
    assert large.expanded_bytes / GIB == expected["llama70b_if_mha_gib"]


@case("kv-19")
def test_a_hybrid_model_has_no_rate_per_token(given: dict[str, Any], expected: dict[str, Any]) -> None:
    assert given["hybrid_model"]
    cache = pb.kv_cache(pb.model("gpt-oss-120b"), tokens=8192)
    assert cache.one_rate is expected["is_per_token_rate_valid"]
    assert "no one rate per token" in cache.note
    for tokens in (8192, 131_072):
        assert replace(cache, tokens=tokens).total_bytes == cache.constant_bytes + cache.slope_bytes * tokens
    rates = [replace(cache, tokens=tokens).pool(50 * GB).bytes_per_token for tokens in (8192, 131_072)]
    assert rates[0] > 1.5 * rates[1]
    assert pb.kv_cache(pb.model("llama-3.1-8b")).one_rate


@case("kv-20")
def test_an_allocator_that_knows_windows_holds_ten_times_as_much(
    given: dict[str, Any], expected: dict[str, Any]
) -> None:
    sliding = pb.KvLayers(count=50, heads=16, head_dim=256, window=1024)
    full = pb.KvLayers(count=10, heads=4, head_dim=512)
    after = pb.kv_cache([sliding, full], tokens=262_144, batched=2048).pool(given["kv_gb"] * GB)
    before = replace(after.cache, hybrid=False).pool(given["kv_gb"] * GB)
    assert before.tokens == within(given["tokens_before"], 5)
    assert after.tokens == within(given["tokens_after"], 5)
    assert after.tokens / before.tokens == within(expected["ratio"], 5)
    assert before.bytes_per_token / 1000 == within(expected["kb_per_token_before"], 5)
    assert after.bytes_per_token / 1000 == within(expected["kb_per_token_after"], 5)
