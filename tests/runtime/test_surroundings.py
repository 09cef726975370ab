"""Ranks see the modules and files that the kernel sees at the time of a job."""

import os
import sys
from pathlib import Path

import numpy
import pytest

from playbook.runtime.surroundings import Surroundings, is_users

WAIT_S = 60


def test_installed_and_standard_modules_are_not_the_users():
    assert not is_users(sys.modules["os"])
    assert not is_users(numpy)
    assert not is_users(sys.modules["playbook"])
    assert not is_users(sys.modules["builtins"])
    assert is_users(sys.modules[__name__])


def test_the_empty_entry_of_the_path_means_the_working_directory(monkeypatch, tmp_path: Path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", "/somewhere"])
    assert Surroundings.here().sys_path == (str(tmp_path), "/somewhere")


@pytest.mark.dist
@pytest.mark.timeout(120)
def test_a_rank_imports_an_edited_module_again(pool, tmp_path: Path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    module = tmp_path / "bench_edited.py"

    def read():
        import bench_edited  # pyright: ignore[reportMissingImports]

        return bench_edited.VALUE

    for number, value in enumerate(("one", "another")):
        module.write_text(f"VALUE = {value!r}\n")
        os.utime(module, (1_700_000_000 + number, 1_700_000_000 + number))
        assert pool.submit(read).result(WAIT_S).values == (value, value)


@pytest.mark.dist
@pytest.mark.timeout(120)
def test_a_rank_works_in_the_kernels_directory(pool, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert pool.submit(os.getcwd).result(WAIT_S).values == (str(tmp_path),) * 2
