import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

import playbook as pb
from playbook.runtime import trace as tracing
from playbook.runtime.child import child_environment
from playbook.runtime.trace import trace
from playbook.runtime.trace_scope import check_traceable
from playbook.spec import Layout, Model, Scenario, Workload


def scenario(work: dict | None = None, model: dict | None = None, framework="torch", **layout) -> Scenario:
    sizes = {
        "layers": 2,
        "hidden": 64,
        "heads": 4,
        "kv_heads": 2,
        "head_dim": 16,
        "ffn": 96,
        "vocabulary": 128,
    }
    shape = Model(name="small", family="llama", max_sequence=128, **{**sizes, **(model or {})})
    given = {"sequence": 32, "micro_batch": 2, "recipe": "fp32", "kernels": "cpu", **(work or {})}
    return Scenario(shape, Workload(**given), Layout(**layout), framework=framework)


@pytest.fixture(scope="module")
def fsdp2():
    s = scenario({"recipe": "fsdp2-mixed"}, dp=8, zero=3)
    return s, trace(s, rank=7, deadline_s=100)


@pytest.mark.timeout(120)
def test_a_trace_joins_with_the_program_of_its_rank(fsdp2):
    s, found = fsdp2
    comparison = pb.compare(pb.program(s, rank=7), found)
    assert comparison.match_rate >= 0.99
    assert comparison.payload_mismatches == ()
    assert found.peak_bytes == pytest.approx(pb.program(s, rank=7).memory().peak_bytes, rel=0.02)


@pytest.mark.timeout(120)
def test_the_defaults_of_a_workload_are_traced_and_compared_with_any_formula():
    model = scenario().model
    s = Scenario(model, Workload(sequence=32), Layout(dp=2))
    assert (s.workload.recipe, s.framework) == ("bf16-fp32master", "textbook")
    found = trace(s, deadline_s=100)
    count = 2 * (128 + 8192 + 4096 + 18432) + 16384 + 64  # see below
    terms = {row["term"]: row["bytes"] for row in found.terms}
    assert terms["master_weights"] == pytest.approx(4 * count, rel=0.01)  # CUDA's blocks of 512 bytes
    assert terms["optimizer"] == pytest.approx(8 * count, rel=0.06)  # and a number of steps for each weight
    assert pb.compare(pb.program(s), found).only_predicted
    assert pb.compare(pb.program(replace(s, framework="torch")), found).match_rate == 1.0


def test_its_terms_add_up_to_the_peak_and_time_is_left_open(fsdp2):
    _, found = fsdp2
    assert sum(row["bytes"] for row in found.terms) == found.peak_bytes
    assert found.rank == 7
    assert found.seconds is None
    assert found.reserved_bytes is None
    told = f"Trace(PyTorch's code on fake tensors: {found.scenario.model.name}, rank 7 of 8; "
    assert repr(found).startswith(told)
    assert repr(found).endswith(f" at {found.instant})")
    assert "\n" not in repr(found)


def test_its_tables_have_the_columns_of_every_source(fsdp2):
    _, found = fsdp2
    assert found.memory["bytes"].sum() == found.peak_bytes
    assert set(found.memory["instant"]) == {found.instant}
    assert set(found.traffic["source"]) == {"traced"}
    # Three units: gathered in forward and in backward, and reduced.
    assert found.traffic.groupby("collective")["count"].sum().to_dict() == {
        "all_gather": 6,
        "reduce_scatter": 3,
    }
    everywhere = found.instants.groupby("op")["bytes"].sum()
    assert len(everywhere) == len(found.ids)
    assert everywhere.max() == found.peak_bytes


def test_its_traffic_is_that_of_the_formulas(fsdp2):
    _, found = fsdp2
    # A layer has 2·64 + 2·64·64 + 2·32·64 + 3·96·64 parameters, the ends 2·128·64 + 64; all rows divide
    # by 8. Gathered in BF16 twice, reduced in FP32 once; each rank sends 7/8.
    parameters = 2 * (128 + 8192 + 4096 + 18432) + 16384 + 64
    assert found.traffic["wire_bytes"].sum() == (2 * 2 + 4) * parameters * 7 / 8


def test_its_curve_keeps_the_peak(fsdp2):
    _, found = fsdp2
    curve = found.curve(points=20)
    assert len(curve.labels) == len(curve.phases) == len(curve.levels) <= 21
    assert curve.levels[curve.peak_index].sum() == found.peak_bytes


@pytest.mark.timeout(200)
@pytest.mark.parametrize(
    ("layout", "rank"),
    [
        ({"dp": 1024, "zero": 3}, 1000),
        ({"tp": 2, "dp": 4, "zero": 3}, 5),
        ({"tp": 2, "dp": 2, "zero": 3, "sequence_parallel": True}, 3),
    ],
)
def test_a_rank_of_any_world_is_traced_strategies_inside_each_other_too(layout, rank):
    s = scenario({"recipe": "bf16"}, **layout)
    comparison = pb.compare(pb.program(s, rank=rank), trace(s, rank=rank, deadline_s=150))
    assert comparison.match_rate >= 0.99
    assert comparison.payload_mismatches == ()


def test_the_deadline_ends_the_child_and_says_what_would_help():
    start = time.monotonic()
    with pytest.raises(TimeoutError, match=r"not done after 0\.2 s; give a longer deadline_s"):
        trace(scenario(), deadline_s=0.2)
    assert time.monotonic() - start < 60  # generous: the trace itself would go on


def test_a_child_that_cannot_start_is_named_in_one_line(monkeypatch):
    monkeypatch.setattr(tracing, "CHILD", "playbook.no_such_child")
    with pytest.raises(RuntimeError, match="ended with code 1: .*No module named playbook.no_such_child"):
        trace(scenario(), deadline_s=60)


@pytest.mark.timeout(120)
def test_an_error_of_the_traced_code_comes_back_in_one_line(monkeypatch):
    monkeypatch.setattr(tracing, "check_traceable", lambda s: None)
    with pytest.raises(ValueError, match="model 'small' has LayerNorm") as caught:
        trace(scenario(model={"norm": "layer"}), deadline_s=100)
    assert "\n" not in str(caught.value)


@pytest.mark.timeout(120)
def test_the_child_ends_when_its_parent_lets_go(tmp_path: Path):
    request = tmp_path / "request.json"
    long = scenario({"global_batch": 2000})
    request.write_text(json.dumps({"scenario": long.to_json(), "rank": 0}))
    command = [sys.executable, "-m", tracing.CHILD, str(request), str(tmp_path / "result.json")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=child_environment(1)) as child:
        try:
            assert child.stdin is not None
            child.stdin.close()
            assert child.wait(timeout=90) == 1
        finally:
            child.kill()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"framework": "transformers", "work": {"recipe": "fsdp2-mixed"}, "dp": 2, "zero": 3},
            "framework='torch'",
        ),
        ({"pp": 2, "dp": 2}, "use gradient_sync='last'"),
        ({"pp": 2, "model": {"tied": True}}, "use an untied model"),
        ({"pp": 2, "schedule": "dualpipe", "work": {"global_batch": 8}}, "use by='hand'|torch"),
        ({"dp": 2, "zero": 2}, "use zero=3 with reshard=False"),
        ({"tp": 4}, "2 key-value heads"),
        ({"framework": "textbook", "work": {"recipe": "bf16-fp32grad"}}, r"\(fsdp2-mixed: zero=3\)$"),
        ({"framework": "textbook", "work": {"loss": "chunked"}}, "all logits at once; use loss='eager'"),
    ],
)
def test_what_cannot_be_traced_is_refused_before_a_process_starts(given, words):
    with pytest.raises(ValueError, match=words):
        check_traceable(scenario(**given))


@pytest.mark.parametrize(("rank", "words"), [(8, "the world has 8 ranks"), (-1, "at least 0")])
def test_a_rank_outside_the_world_is_refused(rank, words):
    with pytest.raises(ValueError, match=words):
        trace(scenario(dp=8), rank=rank)


def test_only_a_scenario_is_traced():
    with pytest.raises(TypeError, match="takes a Scenario, not a str"):
        trace("toy-15m")
