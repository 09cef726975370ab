"""The commands that start real ranks."""

import json
import shlex

import pytest

from playbook.cli import demo, run_command
from playbook.cli.run import pipeline_pairs
from playbook.collectives import algorithms
from playbook.strategies import runnable

pytestmark = [pytest.mark.dist, pytest.mark.timeout(300)]


@pytest.fixture
def command(capsys):
    """Run a command line; gives status, standard output and standard error."""

    def call(line):
        status = run_command(shlex.split(line))
        out, err = capsys.readouterr()
        return status, out, err

    return call


def test_run_prints_parity_bytes_memory_and_where_it_is_written(command):
    status, out, _ = command("run tp --ranks 2 --by hand --repeats 1 --backend gloo --json")
    found = json.loads(out)
    assert status == 0
    assert set(found) == {"parity", "traffic", "memory", "seconds", "backend", "directory"}
    assert found["parity"]["ok"] is True
    assert found["parity"]["dtype"] == "fp64"
    assert max(found["parity"][part] for part in ("loss_error", "grad_error", "step_error")) <= 1e-12
    assert found["backend"] == "gloo"
    assert found["memory"]["peak_bytes"] > 15_733_632 * 4 / 2
    # 2 sequences of 64 tokens in FP32: an all-reduce of B S D x 4 B = 196 608 B makes each rank send as
    # much. 6 layers have 4 of them, the ends 2 (embedding forward, head backward), and the logits gathered,
    # B S V/2 x 4 B = 2 097 152 B sent: 26 x 196 608 + 2 097 152 = 7 208 960.
    assert found["traffic"]["wire_bytes"] == 7_208_960


def test_a_planted_fault_fails_the_gate_with_status_1(command):
    status, out, _ = command("run ddp --ranks 2 --by hand --repeats 1 --fault skipped_collective")
    assert status == 1
    assert "FAILED in fp64" in out


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("run xp --ranks 2", "strategy='xp' is not known; valid are ddp, fsdp2, pp, tp"),
        ("run ddp --ranks 0", "ranks=0"),
        ("demo --ranks 0", "ranks=0 must be at least 1"),
        ("run ddp --ranks 100000", "ranks=100000 need about"),
        ("run ddp --ranks 2 --by foot", "by='foot' is not known; valid are hand, library"),
        ("run ddp --ranks 2 --colour red", "has no lever 'colour'; levers are"),
        ("run ddp --ranks 2 red", "'red' is no option"),
        ("run ddp --ranks 2 --backend carrier-pigeon", "'carrier-pigeon' is not known"),
        ("run tp --ranks 4", "tp=4 does not divide heads=6 of toy-15m; tp in 1, 2 would work"),
    ],
)
def test_what_the_caller_must_change_is_one_line_and_status_2(command, line, text):
    status, out, err = command(line)
    assert (status, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert text in err


def test_the_demo_covers_every_strategy_both_ways_and_every_collective_by_every_algorithm():
    found = {(each.kind, each.name, each.by) for each in demo.all_demos()}
    assert {("strategy", name, way) for name in runnable() for way in ("hand", "library")} <= found
    pairs = [(name, op) for name, algorithm in algorithms().items() for op in algorithm.phases]
    assert {("collective", op, name) for name, op in pairs} <= found
    assert len(found) == 2 * len(runnable()) + len(pairs)


TRACED = "trace --model toy-15m --dp 4 --zero 3 --framework torch --recipe fp32 --kernels cpu --sequence 64"


def test_trace_prints_the_peak_of_the_real_code_by_term(command):
    status, out, _ = command(f"{TRACED} --json")
    found = json.loads(out)
    terms = {row["term"]: row["bytes"] for row in found["terms"]}
    assert status == 0
    assert set(found) == {
        *("peak_bytes", "reserved_bytes", "terms", "seconds", "rank", "instant", "framework", "note")
    }
    assert (found["framework"], found["note"]) == ("torch", "")
    assert (found["seconds"], found["rank"]) == (None, 0)
    # FSDP2 keeps a quarter of every FP32 weight: 15 733 632 x 4 B / 4.
    assert terms["parameters"] == 15_733_632
    assert sum(terms.values()) == found["peak_bytes"]


def test_a_rank_outside_the_world_is_refused_in_one_line(command):
    status, out, err = command(f"{TRACED} --rank 4")
    assert (status, out) == (2, "")
    assert "rank=4 but the world has 4 ranks; use 0 to 3" in err


@pytest.mark.slow
def test_the_demo_finds_everything_right(command):
    status, out, err = command("demo --json")
    demos = json.loads(out)["demos"]
    assert [row for row in demos if not row["parity_ok"]] == []
    assert status == 0
    assert len(demos) == len(list(demo.all_demos()))
    assert all(row["seconds"] > 0 for row in demos)
    assert "demo:" in err


def test_a_pipelines_step_is_laid_beside_its_simulation_or_says_why_not():
    step = {"source": "emulated", "makespan_s": 0.67, "predicted_makespan_s": 0.66, "error": 0.0152}
    assert pipeline_pairs(step) == [
        (
            "pipeline",
            "670\u2009ms, emulated: the emulated step, with sleeps in place of compute, and not the step "
            "above; simulated 660\u2009ms, so +1.5%",
        )
    ]
    step = {"source": "measured:gloo", "makespan_s": 0.67, "not_tried": "not tried: ranks share a GPU"}
    assert pipeline_pairs(step) == [
        (
            "pipeline",
            "670\u2009ms, measured:gloo: the step with its actions on the clock; "
            "prediction not tried: ranks share a GPU",
        )
    ]
    assert pipeline_pairs(None) == []
