import json
from dataclasses import replace

import pytest

import playbook as pb
from playbook.cli import run_command
from playbook.runtime.twin_scope import check_room, check_twin, worst_rank

GB = 10**9


def scenario(framework="torch", **layout):
    workload = pb.Workload(sequence=128, recipe=layout.pop("recipe", "bf16"))
    return pb.Scenario(pb.model("toy-15m"), workload, pb.Layout(**layout), framework=framework)


def example(**changes):
    """A twin with numbers by hand."""
    instants = [
        ("between steps", 60, 90),
        ("forward", 100, 120),
        ("backward", 130, 150),
        ("optimizer", 90, 150),
    ]
    rows = [dict(zip(("instant", "allocated_bytes", "reserved_bytes"), row, strict=True)) for row in instants]
    terms = {"parameters": 50, "activations": 80, "reserved_unused": 20, "context": 7}
    values = {
        "scenario": scenario(dp=8),
        "rank": 3,
        "network": "modelled",
        "instants": rows,
        "terms": [{"term": term, "bytes": size} for term, size in terms.items()],
        "op": "m0/B/layers.0",
        "context_bytes": 7,
        "repeats_s": (0.5, 0.6),
        "compute_s": 0.4,
        "seconds": 0.55,
        "machine": "a GPU",
    }
    from playbook.runtime.twin_result import Twin

    return Twin(**{**values, **changes})


def test_a_twin_tells_its_peak_its_waiting_and_where_it_stands():
    found = example()
    assert (found.peak_bytes, found.reserved_bytes, found.device_bytes) == (130, 150, 157)
    assert found.instant == "backward"
    assert found.exposed_s == pytest.approx(0.15)
    assert found.coordinates["dp"] == 3
    assert example(compute_s=0.6).exposed_s == 0.0
    assert "rank 3 of 8" in repr(found)


def test_a_twin_says_whose_code_ran():
    found = example()
    assert repr(found).startswith("Twin(PyTorch's code on a GPU: ")
    hugging = replace(found.scenario, framework="transformers", layout=pb.Layout(dp=8, zero=3))
    assert repr(example(scenario=hugging)).startswith("Twin(Hugging Face's code on a GPU: ")
    assert repr(example(build="model.py:build")).startswith("Twin(model.py:build on a GPU: ")


def test_its_memory_table_carries_its_source():
    rows = example().table.to_dict("records")
    assert {row["source"] for row in rows} == {"twin"}
    assert {row["instant"] for row in rows} == {"backward"}
    outside = ("reserved_unused", "context")
    assert sum(row["bytes"] for row in rows if row["term"] not in outside) == 130


def test_compare_puts_a_twin_beside_the_formula_by_peak_and_instant():
    found = pb.compare(scenario(dp=8), example())
    assert found.level == "memory"
    assert found.match_rate == 1.0
    rows = found.table.set_index("quantity")
    assert rows.loc["peak", "measured"] == 130
    assert rows.loc["peak in backward", "measured"] == 130
    assert rows.loc["peak in optimizer", "measured"] == 90
    assert rows.loc["between steps", "measured"] == 60
    phases = [f"peak in {phase}" for phase in ("forward", "backward", "optimizer")]
    assert rows.loc["peak", "formula"] == max(rows.loc[phases, "formula"])


def test_without_a_gpu_a_twin_says_what_works():
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(ValueError, match=r"no GPU that torch can use here.*pb\.trace"):
        pb.twin(scenario(dp=8), rank=3)


def test_without_a_gpus_driver_a_twin_is_refused_before_a_process_starts(monkeypatch):
    monkeypatch.setattr("playbook.runtime.twin_scope.GPU_FILES", ("no-such-driver*",))
    monkeypatch.setattr("playbook.runtime.twin.ask_child", lambda *_, **__: pytest.fail("started"))
    monkeypatch.setattr("sys.platform", "linux")
    with pytest.raises(ValueError, match=r"pb\.trace \(in a terminal `playbook trace`\) runs the same step"):
        pb.twin(scenario(dp=8), rank=3)


def test_the_command_says_in_one_line_why_there_is_no_twin(capsys):
    assert run_command(["twin", "--model", "toy-15m", "--zero", "2", "--dp", "8"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("playbook: zero=2")
    assert told.count("\n") == 1


def test_the_command_prints_the_keys_that_were_promised(monkeypatch, capsys):
    monkeypatch.setattr("playbook.runtime.twin.twin", lambda *_, **__: example())
    assert run_command(["twin", "--model", "toy-15m", "--dp", "8", "--network", "off", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert set(told) == {
        *("peak_bytes", "reserved_bytes", "terms", "seconds", "rank", "exposed_seconds", "instants"),
        *("framework", "note"),
    }
    assert told["framework"] == "torch"  # the textbook's accounting has no code to run
    assert told["rank"] == 3
    assert run_command(["twin", "--model", "toy-15m", "--dp", "8"]) == 0
    text = capsys.readouterr().out
    assert "communication that nothing hides" in text
    assert "torch\ncode" in text


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"framework": "megatron"}, "use framework='torch' or 'textbook' or 'transformers'"),
        ({"zero": 2, "dp": 8}, "zero=3 with reshard=False"),
        ({"pp": 2, "dp": 2, "schedule": "dualpipe"}, "use dp=1 and tp=1, or gpipe"),
        ({"framework": "transformers", "dp": 8}, "use zero=3"),
    ],
)
def test_what_no_twin_runs_is_refused_with_what_works(changes, says):
    with pytest.raises(ValueError, match=says):
        check_twin(scenario(**changes), "modelled")


def test_an_unknown_network_lists_the_known_ones():
    with pytest.raises(ValueError, match="modelled, off"):
        check_twin(scenario(dp=8), "fast")


def test_a_step_that_cannot_fit_is_refused_with_its_predicted_need():
    s = pb.Scenario(pb.model("llama-3.1-8b"), pb.Workload(recipe="bf16"), pb.Layout(dp=8), framework="torch")
    # 8.03e9 parameters x 8 bytes of weights, gradients and moments, before anything else
    with pytest.raises(
        ValueError, match=r"rank 3 needs (6[4-9]|[7-9]\d|1\d\d)\.\d.GB .*predicted.* 40\.0.GB"
    ):
        check_room(s, 3, 40 * GB)
    check_room(s, 3, 400 * GB)


def test_the_rank_that_needs_most_is_taken_by_default():
    assert worst_rank(scenario(dp=8)) == 0
    assert worst_rank(scenario(pp=2)) in (0, 1)


def test_something_else_than_a_scenario_is_refused():
    with pytest.raises(TypeError, match="takes a Scenario"):
        pb.twin("llama")  # pyright: ignore[reportArgumentType]
