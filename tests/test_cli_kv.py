import json
import shlex

import pytest

from playbook.cli import run_command


def printed(line, capsys):
    assert run_command(shlex.split(line)) == 0
    return capsys.readouterr().out


def test_kv_prints_the_four_keys_of_the_contract(capsys):
    line = "kv --model llama-3.1-70b --dtype bf16 --tokens 32768 --sequences 2 --tp 16 --block 16 --json"
    found = json.loads(printed(line, capsys))
    assert found["bytes_per_token"] == 327_680
    assert found["total_bytes"] == 2 * 10_737_418_240
    assert found["bytes_per_rank"] == found["engine_bytes"] == 2 * 1_342_177_280


def test_kv_says_in_words_what_is_copied_and_what_is_windowed(capsys):
    text = printed("kv --model gemma-3-27b-text --tokens 32768 --tp 8 --no-hybrid-allocator", capsys)
    assert "one copy of 1" in text
    assert "window" in text
    assert "no one rate per token" in text
    assert text.count("source: formula") == 1


def test_kv_shows_the_latent_cache_beside_the_expanded_one(capsys):
    text = printed("kv --model deepseek-v3 --tokens 65536 --dtype int4", capsys)
    assert "if every query head had its own" in text


def test_kv_reads_the_pool_of_a_log(capsys):
    found = json.loads(printed("kv --model llama-3.1-8b --tokens 29000 --pool 3.81GiB --json", capsys))
    assert found["pool"]["tokens"] == 31_200  # 1950 pages of 2 MiB
    assert found["pool"]["sequences"] == 1
    assert "31\u2009200 tokens" in printed("kv --model llama-3.1-8b --pool 3.81GiB", capsys)


def test_inference_prints_terms_pool_and_capacity(capsys):
    found = json.loads(printed("inference --model llama-3.1-70b --tp 8 --gpu h100 --json", capsys))
    assert {row["term"] for row in found["terms"]} >= {"parameters", "kv_cache", "workspace", "context"}
    assert found["fits"] is True
    assert found["capacity_tokens"] // 4608 == found["capacity_sequences"]


def test_inference_says_in_words_whether_it_fits(capsys):
    text = printed("inference --model llama-3.1-70b --gpu h100", capsys)
    assert "does not fit" in text
    assert "leave no pool" in text


def test_an_engine_is_judged_by_the_part_that_it_may_take(capsys):
    text = printed("inference --model llama-3.1-70b --tp 8", capsys)
    assert "77.0\u2009GB, 90.0\u2009% of h100's 85.5\u2009GB" in text
    most = json.loads(printed("inference --model llama-3.1-70b --tp 8 --json", capsys))["largest_concurrency"]
    fitting = printed(f"inference --model llama-3.1-70b --tp 8 --concurrency {most}", capsys)
    assert "to spare" in fitting
    over = printed(f"inference --model llama-3.1-70b --tp 8 --concurrency {most + 1}", capsys)
    assert "does not fit" in over
    assert "MB are missing" in over
    assert f" {most} such sequences" in over


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("kv --model gpt2", "note: tokens=1024 instead of 4096: gpt2 has 1024 learned positions"),
        ("inference --model gpt2", "note: prompt=512 instead of 4096: gpt2 has 1024 learned positions"),
        ("memory --model gpt2", "note: sequence=1024 instead of 4096: gpt2 has 1024 learned positions"),
        ("kv --model llama-3.1-8b", ""),
    ],
)
def test_a_length_that_nobody_typed_ends_where_learned_positions_do(line, said, capsys):
    assert run_command(shlex.split(f"{line} --json")) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)
    assert err.strip() == said


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("kv --model llama-3.1-70b --dtype fp7", "kv_dtype='fp7' is not known; valid are fp32"),
        ("kv --model llama-3.1-70b --tokens 0", "tokens=0 must be at least 1"),
        ("kv --model llama-3.1-70b --tp 3", "use tp=1, 2, 4, 8 or a multiple of 8"),
        ("kv --model llama-3.1-70b --pool 3.81", "size='3.81' has no unit; use 3.81GiB, 3.81GB or 3.81B"),
        ("kv --model gpt2 --tokens 4096", "tokens=4096 but gpt2 has 1024 learned positions; use tokens=1024"),
        ("inference --model gpt2 --prompt 4096", "prompt=4096 with 512 more but gpt2 has 1024 learned"),
        ("inference --model llama-3.1-70b --tp 3", "tp in 1, 2, 4, 8, 16, 32, 64 would work"),
        ("inference --model llama-3.1-70b --utilisation 90", "utilisation=90.0 is a part of the memory"),
    ],
)
def test_a_wrong_value_ends_in_one_line(line, message, capsys):
    assert run_command(shlex.split(line)) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
