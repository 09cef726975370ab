"""Ranks that torchrun starts write the same run directory as a pool's."""

import subprocess
import sys
from pathlib import Path

import pytest

from playbook.runtime import torchrun
from playbook.runtime.run import load_run

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
SCRIPT = """
import sys
import torch
import torch.distributed as dist
from playbook.runtime.rank import current_phase, emit, report_table
from playbook.runtime.torchrun import session

with session("script", directory=sys.argv[1]) as seat:
    emit("mark", "here", device=seat.device)
    report_table("memory", [{"op": "x", "bytes": 8, "term": "temporary"}])
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    assert float(tensor) == 2.0
    if len(sys.argv) > 2:
        current_phase("the last step")
        if seat.rank == 1:
            raise ValueError("odd rows")
        dist.all_reduce(tensor)
"""


def start(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [*TORCHRUN, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=250)


@pytest.mark.dist
@pytest.mark.timeout(300)
def test_a_script_of_ones_own_writes_a_run_directory(tmp_path: Path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    ended = start(script, tmp_path / "run")
    assert ended.returncode == 0, ended.stderr
    run = load_run(tmp_path / "run")
    assert (run.state, run.name, run.ranks, run.backend) == ("done", "script", 2, "gloo")
    assert sorted((e["rank"], e["device"]) for e in run.events if e["kind"] == "mark") == [
        (0, "cpu"),
        (1, "cpu"),
    ]
    assert sorted(run.memory["rank"]) == [0, 1]
    assert run.seconds > 0


@pytest.mark.dist
@pytest.mark.timeout(300)
def test_a_rank_that_fails_is_named_in_the_run_directory(tmp_path: Path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    assert start(script, tmp_path / "run", "fail").returncode != 0
    run = load_run(tmp_path / "run")
    assert (run.state, run.error) == ("failed", "rank 1: ValueError: odd rows")


@pytest.mark.dist
@pytest.mark.timeout(300)
def test_a_strategy_runs_under_torchrun(tmp_path: Path):
    arguments = ("ddp", "--by", "hand", "--parity", "off", "--repeats", "1", "--directory", tmp_path / "run")
    ended = start("-m", "playbook.runtime.torchrun", *arguments)
    assert ended.returncode == 0, ended.stderr
    run = load_run(tmp_path / "run")
    assert (run.state, run.name) == ("done", "ddp by hand")
    assert len(run.values) == 2
    assert len(run.traffic) > 0


@pytest.mark.dist
@pytest.mark.timeout(300)
def test_a_wrong_lever_is_one_line(tmp_path: Path):
    ended = start("-m", "playbook.runtime.torchrun", "ddp", "--colour", "red")
    assert ended.returncode != 0
    assert "strategy ddp has no lever 'colour'" in ended.stderr


def test_a_session_needs_torchrun(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(ValueError, match="RANK is not set: start this with torchrun"), torchrun.session():
        pass


def test_the_command_line_says_how_it_is_used(capsys, monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.setenv(name, "1")
    assert torchrun.main([]) == 2
    assert "torchrun --nproc-per-node N" in capsys.readouterr().err
    assert torchrun.main(["tp", "by"]) == 2
    assert "levers are given as --name value" in capsys.readouterr().err
