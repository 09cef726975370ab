import json
import shlex
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
import typer

import playbook as pb
from playbook.cli import complain, expected, options
from playbook.cli.run import read_levers
from playbook.runtime.errors import Failure
from playbook.spec import Layout, Lora, Workload

ROOT = Path(pb.__file__).parents[1]


def test_params_counts_a_model(answer, command):
    expected = {
        "total": 70_553_706_496,
        "active": 70_553_706_496,
        "active_without_input_embedding": 69_503_033_344,
    }
    assert answer("params --model llama-3.1-70b").items() >= expected.items()
    assert (
        "70\N{THIN SPACE}553\N{THIN SPACE}706\N{THIN SPACE}496 parameters"
        in command("params --model llama-3.1-70b")[1]
    )


def test_params_names_keys_that_were_not_understood(command, tmp_path):
    path = tmp_path / "config.json"
    keys = {"model_type": "gpt2", "n_embd": 8, "n_layer": 1, "n_head": 2, "n_positions": 4, "vocab_size": 5}
    path.write_text(json.dumps({**keys, "colour": "red"}))
    assert (
        "not understood, and without a part in these numbers: colour" in command(f"params --model {path}")[1]
    )


def test_collective_counts_steps_bytes_and_seconds(answer):
    # Ring all-reduce of 1 GB on 4 ranks: 6 steps of 250 MB; 6 (2 us + 250 MB / 450 GB/s) = 3.3453 ms.
    found = answer("collective all_reduce --algorithm ring --ranks 4 --bytes 1000000000 --cluster 1x8-h100")
    assert found["steps"] == 6
    assert found["bytes_sent_per_rank"] == 1_500_000_000
    assert found["seconds"] == pytest.approx(3.3453e-3, rel=1e-4)
    assert found["bus_factor"] == 1.5


def test_collective_between_nodes_uses_the_slower_link(answer):
    inside = answer("collective all-gather --ranks 8 --bytes 800000000 --cluster 2x8-h100")
    across = answer("collective all-gather --ranks 16 --bytes 800000000 --cluster 2x8-h100")
    assert across["seconds"] > 5 * inside["seconds"]


def test_memory_gives_the_peak_its_terms_and_the_worst_rank(answer):
    found = answer("memory --model llama-3.1-70b --dp 64 --zero 3 --recompute full")
    keys = (
        "peak_bytes",
        "reserved_bytes",
        "device_bytes",
        "instant",
        "worst_rank",
        "fits",
        "terms",
        "per_stage",
        "host_bytes",
        "note",
        "reserved_low_bytes",
    )
    assert tuple(found) == keys
    terms = {row["term"]: row["bytes"] for row in found["terms"]}
    # ZeRO-3 over 64 ranks: 12 B of 16 a parameter are master weights and moments, 2 weights, 2 gradients.
    assert terms["optimizer"] + terms["master_weights"] == pytest.approx(12 * 70_553_706_496 / 64, rel=1e-6)
    inside = [size for term, size in terms.items() if term not in ("context", "reserved_unused")]
    assert sum(inside) == found["peak_bytes"]
    assert found["worst_rank"] == {"rank": 0, "tp": 0, "cp": 0, "dp": 0, "pp": 0}
    assert found["fits"] is True


def test_memory_names_pipeline_ranks_and_the_stages_that_they_hold(command):
    text = command("memory --model llama-3.1-70b --pp 4 --schedule zbv --dp 8")[1]
    assert "pipeline rank  stages that it holds" in text
    assert "\n0              0 and 7 " in text
    assert "\n3              3 and 4 " in text
    assert (
        "\n1              1 and 2 " in command("memory --model llama-3.1-70b --pp 4 --schedule dualpipe")[1]
    )


def test_replicated_70b_does_not_fit_an_h100(answer, command):
    # 16 B a parameter alone are 1 129 GB.
    found = answer("memory --model llama-3.1-70b --dp 64")
    assert found["fits"] is False
    assert found["peak_bytes"] > 1_128_859_303_936
    text = command("memory --model llama-3.1-70b --dp 64")[1]
    assert "h100: 85.5\N{THIN SPACE}GB, does not fit" in text


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("params --model nope", "model 'nope' is neither a preset nor a file; presets are deepseek-v2"),
        ("params --model /nowhere.json", "model file '/nowhere.json' does not exist"),
        ("params", "Missing option '--model'; add the name of a preset, such as --model llama-3.1-8b"),
        ("trace --dp 2", "Missing option '--model'; add the name of a preset"),
        ("frob", "No such command 'frob'. Commands are params, memory, trace"),
        ("collective all_sum", "all_sum"),
        ("collective all_reduce --ranks 0", "ranks=0; use 1 or more"),
        ("collective all_reduce --ranks 9 --cluster 1x8-h100", "ranks=9 but cluster 1x8-h100 has 8 GPUs"),
        ("memory --model toy-15m --dp 0", "dp=0 must be at least 1"),
        ("memory --model toy-15m --tp 3", "tp=3 does not divide ffn=1024 of toy-15m; tp in 1, 2 would work"),
        ("memory --model toy-15m --dp two", "--dp"),
        ("memory --model toy-15m --gpu h900", "gpu='h900' is not known; valid are a100"),
        ("memory --model toy-15m --cluster 1x8-h100 --gpu h200", "--gpu h200 but cluster 1x8-h100 has h100"),
        (
            "memory --model toy-15m --recipe fp8 --framework torch",
            "recipe='fp8' is not modelled for framework='torch'",
        ),
        ("memory --model toy-15m --stage-layers a,b", "stage_layers='a,b' must be whole numbers with commas"),
        ("memory --model toy-15m --lora big", "lora='big' must be a rank"),
        ("memory --model toy-15m --colour red", "--colour"),
        ("memory --model meta-llama/Llama-3.1-8B", "does not exist; did you mean the preset llama-3.1-8b?"),
        ("memory --model toy-15m --ep 2", "ep=2 but toy-15m has no routed experts; use ep=1"),
        (
            "memory --model toy-15m --framework foo",
            "valid are textbook, torch, transformers, megatron, deepspeed, torchtitan, nanotron\n",
        ),
    ],
)
def test_what_the_caller_must_change_is_one_line_and_status_2(command, line, text):
    for words in (line, f"{line} --json"):
        status, out, err = command(words)
        assert status == 2
        assert out == ""
        assert len(err.splitlines()) == 1
        assert err.startswith("playbook: ")
        assert text in err


def test_a_config_that_is_not_json_or_lacks_a_key_is_one_line(command, tmp_path):
    path = tmp_path / "config.json"
    path.write_text("{")
    assert "is not JSON" in command(f"params --model {path}")[2]
    path.write_text('{"model_type": "llama"}')
    assert "key 'hidden_size' is missing" in command(f"params --model {path}")[2]


def test_every_field_of_workload_and_layout_is_an_option_with_a_text():
    assert set(options.WORKLOAD) == {field.name for field in fields(Workload)}
    assert set(options.LAYOUT) == {field.name for field in fields(Layout)}


def scenario_of(line):
    """Return the scenario that a command line describes."""
    made = []

    def keep(scenario, rank, as_json):
        made.append((scenario, rank))

    app = typer.Typer(add_completion=False)
    app.command()(options.with_scenario(keep))
    app(shlex.split(line), standalone_mode=False)
    return made[0]


@pytest.mark.parametrize(
    ("workload", "layout", "cluster", "framework"),
    [
        ({}, {}, None, "textbook"),
        (
            {"recompute": "full", "global_batch": 512, "sequence": 8192},
            {"dp": 4, "tp": 8, "pp": 4, "zero": 1},
            None,
            "torch",
        ),
        (
            {"lora": Lora(rank=4, targets=("q_proj",)), "loss": "chunked"},
            {"dp": 2, "reshard": False},
            "1x8-h200",
            "torch",
        ),
        ({"kernels": "cpu"}, {"pp": 3, "stage_layers": (30, 30, 20)}, "4x8-h200", "transformers"),
        (
            {"gradient_sync": "last"},
            {"tp": 8, "sequence_parallel": True, "dp": 2, "dp_replicate": 2},
            "laptop",
            "textbook",
        ),
    ],
)
def test_the_command_that_a_scenario_copies_gives_that_scenario_back(workload, layout, cluster, framework):
    scenario = pb.Scenario(
        pb.model("llama-3.1-70b"),
        pb.Workload(**workload),
        pb.Layout(**layout),
        pb.cluster(cluster) if cluster else None,
        framework=framework,
    )
    words = scenario.as_command().removeprefix("playbook memory ")
    assert scenario_of(f"{words} --rank 1") == (scenario, 1)


def test_levers_are_read_as_numbers_flags_and_words():
    words = (
        "--sequence-parallel --microbatches 8 --schedule=gpipe --no-reshard --stage-layers 2,1 --model gpt2"
    )
    assert read_levers(words.split()) == {
        "sequence_parallel": True,
        "microbatches": 8,
        "schedule": "gpipe",
        "reshard": False,
        "stage_layers": (2, 1),
        "model": "gpt2",
    }
    with pytest.raises(ValueError, match="'gpipe' is no option; a lever is given as --name value"):
        read_levers(["gpipe"])


def in_a_fresh_interpreter(code):
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_command_line_loads_nothing_heavy():
    heavy = ("torch", "pandas", "numpy", "ipywidgets", "plotly", "anywidget", "jupyterlab")
    code = f"import playbook.cli, sys; print([name for name in {heavy} if name in sys.modules])"
    assert in_a_fresh_interpreter(code) == "[]"


def test_it_works_where_the_notebook_packages_are_missing():
    code = (
        "import sys\n"
        "for name in ('ipywidgets', 'plotly', 'jupyterlab', 'anywidget'): sys.modules[name] = None\n"
        "from playbook.cli import run_command\n"
        "sys.exit(run_command(['memory', '--model', 'toy-15m', '--dp', '2', '--json']))"
    )
    assert json.loads(in_a_fresh_interpreter(code))["fits"] is True


def test_a_command_in_the_shell_ends_with_its_status():
    done = subprocess.run(
        [sys.executable, "-c", "from playbook.cli import main; main()", "params", "--model", "nope"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=200,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1


def test_a_failed_rank_is_told_in_its_first_line_and_a_fault_of_ours_is_not_hidden(capsys):
    failure = Failure(
        job="tp by hand", rank=3, ranks=4, cause="killed by SIGKILL", phase="backward", traceback="long"
    )
    assert complain(str(expected(pb.RankFailed(failure)))) == 2
    line = "playbook: rank 3 of 4 failed in tp by hand, phase 'backward': killed by SIGKILL\n"
    assert capsys.readouterr().err == line
    assert expected(KeyError("ours")) is None
    assert expected(NotImplementedError()) is None
