"""What `playbook memory` and `playbook trace` print for people."""

import json

import pytest

from playbook.cli.terms import LETTERS, amount, letters_of, when, wrapped, write_terms
from playbook.program.polynomial import ORDER
from playbook.units import GB, MB

THIN = "\N{THIN SPACE}"


def lines_of(text, name):
    """Return the value behind a name of the upper table."""
    return next(line[len(name) :].strip() for line in text.splitlines() if line.startswith(name))


def test_the_allocators_band_is_told_by_both_ends_and_left_out_where_there_is_none(command, answer):
    line = "memory --model llama-3.1-8b --dp 8 --zero 3 --framework torch"
    found, text = answer(line), command(line)[1]
    # Embedding and head have 2 x 128 256 x 4096 parameters and a norm of 4096: 4 to 8 B each; then 0 to 8 B
    # for each of 4096 x 128 256 logits.
    root, logits = 2 * 128_256 * 4096 + 4096, 4096 * 128_256
    assert found["reserved_low_bytes"] == found["peak_bytes"] + 4 * root
    assert found["reserved_bytes"] == found["peak_bytes"] + 8 * (root + logits)
    low, high = (f"{found[key] / GB:.1f}{THIN}GB" for key in ("reserved_low_bytes", "reserved_bytes"))
    assert lines_of(text, "with what the allocator keeps") == f"{low} to {high} reserved"
    assert lines_of(text, "with the driver's context").endswith(" at most")
    assert "upper end" not in text
    papers = command("memory --model llama-3.1-8b --dp 8 --zero 3")[1]
    assert "allocator" not in papers
    assert "at most" not in papers


def test_what_lies_beyond_the_peak_stands_behind_its_parts(command):
    text = command("memory --model toy-15m --dp 2 --framework torch")[1]
    table = [line for line in text.splitlines() if f"{THIN}%" in line or "beyond it" in line]
    beyond = ["beyond it" in line for line in table[-3:] if not line.startswith("GPU")]
    assert beyond == [False, True, True]
    assert f"workspace{' ' * 7}" in text
    assert "64 MiB, whatever the sizes" in text


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("--lora 16", "bf16-fp32master, LoRA of rank 16 on q_proj v_proj, textbook"),
        ("--tp 2 --sequence-parallel", "tp 2, sequence 4\N{THIN SPACE}096"),
        ("--tp 2 --sequence-parallel", "bf16-fp32master, sequence parallel, textbook"),
        ("--recompute full --loss chunked", "bf16-fp32master, full recompute, chunked loss, textbook"),
        ("--pp 2 --schedule gpipe", "bf16-fp32master, gpipe, textbook"),
        ("--attention math --offload cpu", "math attention, optimizer offloaded to cpu"),
        ("--dp 1000000", "dp 1\N{THIN SPACE}000\N{THIN SPACE}000, "),
        ("", "bf16-fp32master, textbook"),
    ],
)
def test_the_scenarios_line_names_what_changes_its_memory(command, options, told):
    status, out, err = command(f"memory --model llama-3.1-8b {options}")
    assert status == 0, err
    assert told in lines_of(out, "scenario")


def test_expert_degrees_and_ranks_are_told_and_grouped(command):
    text = command("memory --model qwen3-30b-a3b --dp 1024 --ep 8 --zero 1")[1]
    assert f"dp 1{THIN}024 ep 8, ZeRO-1" in lines_of(text, "scenario")
    assert lines_of(text, "rank").startswith(f"0 of 1{THIN}024 (")


def test_a_long_formula_goes_on_below_and_its_letters_are_told(command):
    text = command("memory --model deepseek-v3 --dp 64 --ep 8 --zero 1")[1]
    assert max(map(len, text.splitlines()[6:])) < 150
    told = " ".join(text[text.index("letters: ") :].split())
    assert "rkv latent features of keys and values, dn features of a head without position" in told
    assert "Ne ranks that share an expert's state, ep expert-parallel ranks source: formula" in told
    assert "tensor-parallel" not in told


def test_every_symbol_of_a_formula_has_a_word():
    assert set(LETTERS) == {*ORDER, "Ψ"}


def test_letters_are_read_off_formulas_and_not_off_words():
    assert list(letters_of("12·Ψ/N + 5·a·s²/t + 64")) == ["Ψ", "N", "a", "s", "t"]
    assert list(letters_of("8 B a weight of embedding and head, 8 B a logit")) == []
    assert list(letters_of("1/2·b·s·h")) == ["b", "s", "h"]


def test_formulas_are_cut_before_a_plus_and_numbers_are_sizes():
    term = "12345·b·s·h·a·k/N/t"
    first, *rest = wrapped(" + ".join([term] * 8))
    assert first == " + ".join([term] * 4)
    assert rest == ["+ " + " + ".join([term] * 4)]
    assert wrapped("67108864") == ["64 MiB, whatever the sizes"]
    assert wrapped("1000") == [f"1{THIN}000 B, whatever the sizes"]
    assert wrapped("") == [""]


def test_small_terms_have_a_unit_of_their_own():
    assert amount(16_100, GB) == f"16.1{THIN}kB"
    assert amount(5_000_000, GB) == f"5.00{THIN}MB"
    assert amount(20_000_000, GB) == f"0.02{THIN}GB"
    assert amount(65_536, MB) == f"0.07{THIN}MB"


def test_instants_have_their_phase_in_words():
    assert when("B layers.78") == "B layers.78 (backward)"
    assert when("prefill") == "prefill"


def test_what_was_found_stands_beside_what_was_predicted(capsys):
    rows = [{"term": "logits", "bytes": 3 * MB, "formula": "12·b·s·V"}, {"term": "temporary", "bytes": 0}]
    write_terms(rows, 4 * MB, predicted={"logits": 2 * MB, "temporary": MB})
    told = capsys.readouterr().out.replace(THIN, "_").splitlines()
    assert told[0].split() == ["term", "bytes", "of", "the", "peak", "predicted", "formula"]
    assert told[1].split() == ["logits", "3.00_MB", "75.0_%", "2.00_MB", "12·b·s·V"]
    assert told[2].split() == ["temporary", "0_MB", "0.0_%", "1.00_MB"]


def test_a_trace_says_whose_code_ran_when_its_peak_was_and_what_the_formula_gives(command):
    status, out, err = command("trace --model toy-15m --sequence 64")
    assert status == 0, err
    assert lines_of(out, "scenario").endswith(", torch")
    assert lines_of(out, "code").startswith("PyTorch's, as --framework torch predicts it")
    peak, predicted = lines_of(out, "peak allocated"), lines_of(out, "predicted by formula")
    assert peak.endswith("MB at O root (optimizer)")
    assert predicted.endswith("MB at O root (optimizer)")
    assert float(predicted.partition(THIN)[0]) == pytest.approx(float(peak.partition(THIN)[0]), rel=1e-3)
    assert "8·Ψ" in out
    assert "letters: Ψ parameters of the model" in out


def test_keys_of_a_config_that_were_not_read_are_named_in_every_form(command, answer, tmp_path):
    path = tmp_path / "config.json"
    keys = {"model_type": "gpt2", "n_embd": 8, "n_layer": 1, "n_head": 2, "n_positions": 4, "vocab_size": 5}
    path.write_text(json.dumps({**keys, "n_heads": 2}))
    note = "not understood, and without a part in these numbers: n_heads (did you mean n_head?)"
    assert answer(f"memory --model {path} --sequence 4")["note"] == note
    assert command(f"memory --model {path} --sequence 4")[1].endswith(f"note: {note}\n")
    assert note in command(f"params --model {path}")[1]
    asked = ("kv --tokens 4", "inference --prompt 2 --output 2", "fit --vary micro-batch", "explain 1KiB")
    for words in asked:
        assert answer(f"{words} --model {path}")["note"].endswith(note), words
        assert note in command(f"{words} --model {path}")[1], words
