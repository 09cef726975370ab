"""Memory and kills are read from the container where it has limits."""

from pathlib import Path

import psutil

from playbook.runtime import limits


def test_the_limit_of_a_container_counts(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(limits, "_CGROUP", tmp_path)
    (tmp_path / "memory.max").write_text("1000000\n")
    (tmp_path / "memory.current").write_text("700000\n")
    (tmp_path / "memory.stat").write_text("anon 500000\ninactive_file 100000\n")
    assert limits.available_memory_bytes() == 400_000


def test_without_a_limit_the_machine_counts(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(limits, "_CGROUP", tmp_path)
    monkeypatch.setattr(limits, "_CGROUP_V1", tmp_path / "memory")
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("700000\n")
    assert limits.available_memory_bytes() > psutil.virtual_memory().total // 100


def test_kills_for_memory_are_counted(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(limits, "_CGROUP", tmp_path)
    (tmp_path / "memory.events").write_text("low 0\noom 3\noom_kill 2\n")
    assert limits.oom_kills() == 2


def test_there_is_at_least_one_core():
    assert limits.cores() >= 1
