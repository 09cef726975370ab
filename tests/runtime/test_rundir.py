"""The run directory is only added to, survives a kill, and is refused in words if it is damaged."""

import json
import math
from pathlib import Path

import pytest

from playbook.runtime import rundir
from playbook.runtime.run import load_run

DESCRIPTION = {"name": "train step!", "ranks": 2, "backend": "gloo"}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A run of two ranks that has ended."""
    made = rundir.create(DESCRIPTION, tmp_path / "run")
    for rank in (0, 1):
        records = rundir.RecordFile(rundir.records_path(made, rank))
        records.append({"rank": rank, "time_s": 2.0 - rank, "kind": "phase", "name": "forward"})
        records.append(
            {
                "rank": rank,
                "kind": "table",
                "name": "memory",
                "columns": {"rank": [rank], "bytes": [8 + rank]},
            }
        )
        records.append(
            {"rank": rank, "time_s": 3.0, "kind": "value", "name": "", "value": (rank, {"a": 1.5})}
        )
        records.close()
        rundir.log_path(made, rank).write_text(f"hello {rank}\n")
    rundir.finish(made, state="done", seconds=1.25)
    return made


def test_a_run_is_read_back(directory: Path):
    run = load_run(directory)
    assert (run.name, run.ranks, run.backend, run.state) == ("train step!", 2, "gloo", "done")
    assert run.seconds == 1.25
    assert run.values == ((0, {"a": 1.5}), (1, {"a": 1.5}))
    assert list(run.memory["bytes"]) == [8, 9]
    assert list(run.memory["rank"]) == [0, 1]
    assert [event["rank"] for event in run.events] == [1, 0]
    assert run.log(1) == "hello 1\n"
    assert len(run.parity) == len(run.traffic) == len(run.timeline) == 0


def test_a_saved_run_is_the_same(directory: Path, tmp_path: Path):
    saved = load_run(directory).save(tmp_path / "saved")
    assert load_run(saved).values == load_run(directory).values
    with pytest.raises(ValueError, match="exists already"):
        load_run(directory).save(saved)


def test_a_killed_kernel_leaves_a_readable_run(directory: Path):
    (directory / "outcome.json").unlink()
    path = rundir.records_path(directory, 0)
    path.write_bytes(path.read_bytes()[:-20])  # the last line was cut off
    run = load_run(directory)
    assert run.state == "unfinished"
    assert math.isnan(run.seconds)
    assert run.values == (None, (1, {"a": 1.5}))
    assert list(run.memory["bytes"]) == [8, 9]


def test_a_rank_that_never_wrote_is_no_damage(directory: Path):
    rundir.records_path(directory, 1).unlink()
    assert load_run(directory).values == ((0, {"a": 1.5}), None)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda d: (d / "run.json").unlink(), "is not a run directory: it has no run.json"),
        (lambda d: (d / "run.json").write_text("{"), "run.json is not JSON"),
        (lambda d: (d / "run.json").write_text("[1]"), "run.json holds a list, not an object"),
        (
            lambda d: (d / "run.json").write_text('{"layout": 99}'),
            "has layout 99 and ranks None; this version reads",
        ),
        (lambda d: (d / "run.json").write_bytes(b"\xff\xfe\x00"), "run.json is not JSON"),
        (lambda d: (d / "outcome.json").write_text("null"), "outcome.json holds a NoneType"),
        (
            lambda d: (d / "rank0.jsonl").write_text('{"kind": 1}\nnoise\n{}\n'),
            "rank0.jsonl, line 2 is not a record",
        ),
        (lambda d: (d / "rank1.jsonl").write_bytes(b"\x00\xff\n"), "rank1.jsonl, line 1 is not a record"),
    ],
)
def test_damage_is_one_clear_error(directory: Path, damage, words: str):
    damage(directory)
    with pytest.raises(ValueError, match=words):
        load_run(directory)


def test_a_place_that_is_no_folder_is_refused(tmp_path: Path):
    with pytest.raises(ValueError, match="is not a folder: give the directory of a run"):
        load_run(tmp_path / "nowhere")


def test_directories_are_named_by_time_and_job(monkeypatch, tmp_path: Path):
    monkeypatch.setenv("PLAYBOOK_RUNS", str(tmp_path / "mine"))
    first, second = rundir.create(DESCRIPTION), rundir.create(DESCRIPTION)
    assert first.parent == tmp_path / "mine"
    assert first != second
    assert "-train-step--" in first.name
    assert json.loads((first / "run.json").read_text())["ranks"] == 2


def test_a_folder_that_cannot_be_written_is_refused(monkeypatch, tmp_path: Path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("PLAYBOOK_RUNS", str(tmp_path / "file" / "runs"))
    with pytest.raises(ValueError, match="cannot be written to: name a folder that can"):
        rundir.runs_directory()


def test_a_read_only_home_falls_back_to_a_temporary_folder(monkeypatch, tmp_path: Path):
    (tmp_path / "home").touch()
    monkeypatch.delenv("PLAYBOOK_RUNS")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(rundir.tempfile, "gettempdir", lambda: str(tmp_path))
    assert rundir.runs_directory().parent == tmp_path


def test_of_many_runs_the_newest_are_kept(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(rundir, "KEPT_RUNS", 3)
    for number in range(6):
        made = rundir.create(DESCRIPTION, tmp_path / f"2026{number}-run")
        if number != 1:  # the second still runs
            rundir.finish(made, state="done", seconds=0.0)
    (tmp_path / "2020-something-else").mkdir()
    rundir.prune(tmp_path)
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ["2020-something-else", "20261-run", "20263-run", "20264-run", "20265-run"]


def test_the_last_phase_is_found_behind_a_torn_line(directory: Path):
    with rundir.records_path(directory, 0).open("a") as file:
        file.write('{"rank":0,"kind":"phase","name":"backward"}\n{"rank":0,"kind":"phase","na')
    assert rundir.read_last_phase(directory, 0) == "backward"
    assert rundir.read_last_phase(directory, 7) == ""


def test_the_tail_of_a_log_begins_at_a_line(tmp_path: Path):
    path = tmp_path / "log"
    path.write_text("first line\nsecond\nthird\n")
    assert rundir.read_tail(path, 10) == "third\n"
    assert rundir.read_tail(path) == "first line\nsecond\nthird\n"
    assert rundir.read_tail(tmp_path / "none") == ""


def test_tables_with_different_columns_are_joined(tmp_path: Path):
    made = rundir.create({**DESCRIPTION, "ranks": 1}, tmp_path / "run")
    records = rundir.RecordFile(rundir.records_path(made, 0))
    for columns in ({"op": ["a", "b"]}, {"op": ["c"], "bytes": [4]}):
        records.append({"rank": 0, "kind": "table", "name": "memory", "columns": columns})
    records.close()
    table = load_run(made).memory
    assert list(table["op"]) == ["a", "b", "c"]
    assert table["bytes"].isna().tolist() == [True, True, False]
