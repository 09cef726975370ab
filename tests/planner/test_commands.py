import json
import re

import playbook as pb
from playbook.cli import run_command


def test_find_schedule_prints_every_order_and_writes_the_found_one(capsys, tmp_path):
    path = tmp_path / "found.csv"
    asked = ["find-schedule", "--stages", "3", "--microbatches", "4", "--forward", "1,1,2"]
    assert run_command([*asked, "--copies", "1", "--csv", str(path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {"makespan", "lower_bound", "gap", "peak_live", "schedules"} <= set(told)
    assert {"found", "1f1b"} <= {row["name"] for row in told["schedules"]}
    assert pb.schedule(path).simulate(forward=[1, 1, 2]).makespan == told["makespan"]


def test_find_schedule_speaks_of_bound_and_source(capsys):
    assert run_command(["find-schedule", "--stages", "2", "--microbatches", "3", "--memory-cap", "2,1"]) == 0
    text = capsys.readouterr().out
    assert "over the bound" in text
    assert text.endswith("source: simulated\n")


def test_find_schedule_refuses_in_one_line(capsys):
    assert run_command(["find-schedule", "--stages", "2", "--microbatches", "3", "--memory-cap", "x"]) == 2
    assert "memory_cap='x' is no whole number" in capsys.readouterr().err


def test_cut_stages_prints_the_cut_beside_the_equal_one(capsys):
    asked = ["cut-stages", "--model", "llama-3.2-1b", "--pp", "4", "--global-batch", "8"]
    assert run_command([*asked, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert sum(told["stage_layers"]) == sum(told["equal_layers"]) == 16
    assert max(told["seconds"]) < max(told["equal_seconds"])
    assert run_command(asked) == 0
    assert "with the head); this cut" in capsys.readouterr().out


def test_cut_stages_takes_stages_that_do_not_divide_the_layers(capsys):
    asked = ["cut-stages", "--model", "llama-3.2-1b", "--pp", "5", "--json"]
    assert run_command(asked) == 0
    assert sum(json.loads(capsys.readouterr().out)["stage_layers"]) == 16


def test_cut_stages_refuses_a_cap_that_nothing_keeps_in_one_line(capsys):
    asked = ["cut-stages", "--model", "llama-3.2-1b", "--pp", "4", "--memory-cap-gb", "1"]
    assert run_command(asked) == 2
    assert "no cut of 16 layers into 4 stages fits" in capsys.readouterr().err


def test_orders_over_the_cap_have_no_gap(capsys):
    asked = ["find-schedule", "--stages", "4", "--microbatches", "8", "--memory-cap", "1", "--copies", "1"]
    assert run_command([*asked, "--json"]) == 0
    gaps = {row["name"]: row["gap"] for row in json.loads(capsys.readouterr().out)["schedules"]}
    assert gaps["1f1b"] is None
    assert gaps["found"] == 0
    assert run_command(asked) == 0
    text = capsys.readouterr().out
    assert "—" in next(line for line in text.splitlines() if line.startswith("1f1b"))
    assert "\N{MINUS SIGN}" not in text


def test_the_cap_that_cut_stages_advises_works(capsys):
    asked = ["cut-stages", "--model", "llama-3.1-8b", "--pp", "4", "--schedule", "zbv", "--memory-cap-gb"]
    assert run_command([*asked, "40"]) == 2
    told = capsys.readouterr().err
    advised = re.search(r"use --memory-cap-gb ([\d.]+) or more", told)
    assert advised is not None
    assert "bytes" not in told
    assert run_command([*asked, advised[1]]) == 0


def test_cut_stages_refuses_a_cut_that_is_given(capsys):
    assert (
        run_command(["cut-stages", "--model", "llama-3.1-8b", "--pp", "4", "--stage-layers", "8,8,8,8"]) == 2
    )
    assert "--stage-layers 8,8,8,8: this command finds each stage's layers itself" in capsys.readouterr().err
