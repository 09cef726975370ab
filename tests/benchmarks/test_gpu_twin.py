import json

import pytest

import playbook as pb
from benchmarks import gpu_twin
from benchmarks.twin_cases import CASES
from playbook.runtime.twin_scope import check_twin

H200_BYTES = 143_771 * 2**20


def test_the_grid_is_as_wide_as_it_claims():
    layouts = [case.layout for case in CASES]
    kinds = {
        "ddp": [one for one in layouts if set(one) == {"dp"}],
        "zero1": [one for one in layouts if one.get("zero") == 1],
        "fsdp2": [one for one in layouts if one.get("zero") == 3 and "tp" not in one],
        "tp": [one for one in layouts if one.get("tp", 1) > 1 and one.get("dp", 1) == 1],
        "fsdp2 x tp": [one for one in layouts if one.get("tp", 1) > 1 and one.get("dp", 1) > 1],
        "pp": [one for one in layouts if "pp" in one],
    }
    assert len(CASES) >= 44
    assert min(len(found) for found in kinds.values()) >= 3
    assert sum(case.framework == "transformers" for case in CASES) >= 12
    assert sum(case.rank > 0 for case in CASES) >= 30
    assert {1, 1024} <= {case.scenario.world for case in CASES}


@pytest.mark.parametrize("number", range(len(CASES)))
def test_every_case_is_one_that_a_twin_runs(number):
    check_twin(CASES[number].scenario, "modelled")


def test_the_largest_cases_fit_the_card():
    largest = max(pb.training_memory(case.scenario, rank=case.rank).peak_bytes for case in CASES[:40])
    assert largest < 0.9 * H200_BYTES


def test_a_case_that_ends_its_process_is_named_and_the_next_one_has_its_turn(tmp_path, monkeypatch):
    def stuck(file, first, until, part):
        if first != 1:
            gpu_twin.append(file, {**gpu_twin.describe(first, CASES[first]), "error": 0.01 * (first + 1)})

    monkeypatch.setattr(gpu_twin, "CASES", CASES[:3])
    monkeypatch.setattr(gpu_twin, "run_until_stuck", stuck)
    gpu_twin.run_grid(tmp_path, seconds=60)
    told = json.loads((tmp_path / "gpu_twin.json").read_text())
    assert [row["case"] for row in told["rows"]] == [0, 1, 2]
    assert told["rows"][1]["failed"] == "its process ended or hung"
    assert (told["measured"], told["failed"]) == (2, 1)
    assert (told["median_error"], told["worst_error"]) == (pytest.approx(0.02), 0.03)


def test_no_case_begins_after_the_time_is_up(tmp_path):
    gpu_twin.run_grid(tmp_path, seconds=-1.0)
    assert json.loads((tmp_path / "gpu_twin.json").read_text())["rows"] == []
