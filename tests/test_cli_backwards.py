import json
import shlex

from playbook.cli import run_command

FSDP = "--model llama-3.1-70b --dp 64 --zero 3 --recompute full --framework torch --recipe fsdp2-mixed"


def printed(line, capsys):
    assert run_command(shlex.split(line)) == 0
    return capsys.readouterr().out


def test_fit_prints_the_value_and_what_was_looked_at(capsys):
    found = json.loads(printed(f"fit {FSDP} --vary sequence --json", capsys))
    assert found["limit_bytes"] == 81_559 * 2**20
    fitting = [row["sequence"] for row in found["table"] if row["fits"]]
    assert max(fitting) == found["value"]


def test_fit_asks_an_engine_for_concurrency(capsys):
    text = printed("fit --model llama-3.1-70b --tp 8 --vary concurrency --prompt 32000", capsys)
    assert "sequences at once" in text
    assert "32\u2009000 + 512 tokens, cache in bf16" in text
    assert "source: formula" in text


def test_fit_says_what_would_fit(capsys):
    text = printed("fit --model llama-3.1-70b --dp 8", capsys)
    assert "nothing fits" in text
    assert "what would fit: zero=3" in text


def test_explain_names_the_tensor(capsys):
    line = "explain 19.57GiB --model llama-3.1-8b --sequence 81920 --recompute full --framework torch"
    found = json.loads(printed(f"{line} --json", capsys))
    assert found["rows"][0]["tensor"] == "logits"
    assert "is the size of logits" in printed(line, capsys)


def test_fit_takes_the_field_as_it_is_typed_and_says_what_is_left(capsys):
    text = printed(f"fit {FSDP} --vary micro-batch", capsys)
    assert "sequences a micro-batch" in text
    assert "GB free" in text
    assert "too much" in text


def test_fit_caps_a_prompt_that_nobody_typed(capsys):
    assert run_command(shlex.split("fit --model gpt2 --sequence 8 --vary concurrency")) == 0
    assert "512 + 512 tokens" in capsys.readouterr().out


def test_a_size_below_zero_ends_in_one_line(capsys):
    assert run_command(shlex.split("explain -5GiB --model llama-3.1-8b")) == 2
    assert capsys.readouterr().err == "playbook: size='-5GiB' must be above 0; use 5GiB\n"


def test_a_wrong_field_ends_in_one_line(capsys):
    assert run_command(shlex.split("fit --model llama-3.1-8b --vary width")) == 2
    error = capsys.readouterr().err
    assert "vary='width' is not known" in error
    assert error.count("\n") == 1
