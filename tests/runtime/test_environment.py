"""The environment of a rank."""

import os
import sys
from pathlib import Path

import pytest

from playbook.runtime import environment


def test_a_rank_sees_the_kernels_environment_as_it_is_now(monkeypatch):
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    made = environment.rank_environment(threads=3, loopback=True)
    assert made["NCCL_DEBUG"] == "INFO"
    assert made["OMP_NUM_THREADS"] == "3"
    assert (
        made["GLOO_SOCKET_IFNAME"]
        == made["NCCL_SOCKET_IFNAME"]
        == ("lo0" if sys.platform == "darwin" else "lo")
    )


def test_over_several_nodes_the_interface_is_left_alone(monkeypatch):
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    assert "GLOO_SOCKET_IFNAME" not in environment.rank_environment(threads=1, loopback=False)


def test_what_is_set_stays_set_when_the_rest_is_completed(monkeypatch):
    monkeypatch.setenv("PLAYBOOK_TEST_A", "mine")
    monkeypatch.delenv("PLAYBOOK_TEST_B", raising=False)
    environment.complete({"PLAYBOOK_TEST_A": "yours", "PLAYBOOK_TEST_B": "yours"})
    assert (os.environ["PLAYBOOK_TEST_A"], os.environ.pop("PLAYBOOK_TEST_B")) == ("mine", "yours")


def test_torchruns_place_is_read(monkeypatch):
    for name, value in {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}.items():
        monkeypatch.setenv(name, value)
    place = environment.torchrun_place()
    assert (place.rank, place.ranks, place.local_rank, place.local_ranks) == (5, 8, 1, 4)
    assert not place.one_node


def test_runs_go_to_the_cache_or_to_the_chosen_folder(monkeypatch):
    monkeypatch.setenv("PLAYBOOK_RUNS", "~/mine")
    assert environment.chosen_runs_directory() == Path.home() / "mine"
    monkeypatch.setenv("PLAYBOOK_RUNS", "")
    assert environment.chosen_runs_directory() is None
    if sys.platform != "darwin":
        monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
        assert environment.cache_runs_directory() == Path("/cache/playbook/runs")


def test_torchrun_must_have_started_us(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(ValueError, match="RANK is not set"):
        environment.torchrun_place()
