import json

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
