"""Twins that ship with the library: read back whole, found by the work and not by the cluster."""

from dataclasses import replace

import pytest

import playbook as pb
from playbook.recorded import find_twin, recorded_twins
from playbook.units import THIN

ONE_B = pb.Scenario(
    pb.model("llama-3.2-1b"),
    pb.Workload(micro_batch=2, sequence=2048, recipe="fsdp2-mixed"),
    pb.Layout(dp=8, zero=3),
    framework="torch",
)


def test_twins_ship_with_where_and_when_they_were_measured():
    twins = recorded_twins()
    assert len(twins) >= 10
    assert {twin.machine for twin in twins} == {"NVIDIA H200"}
    for twin in twins:
        assert 0 <= twin.rank < twin.scenario.world
        # the allocator holds what it hands out, and an H200 has 150 GB
        assert 0 < twin.peak_bytes <= twin.reserved_bytes < 151e9
        assert 0 < twin.seconds < 60
        assert twin.date > "2026-01-01"


def test_a_twin_is_found_on_whatever_cluster_it_is_asked_for():
    found = find_twin(ONE_B)
    assert found is not None
    elsewhere = replace(ONE_B, cluster=pb.cluster("1x8-h100"))
    assert find_twin(elsewhere) is found
    assert find_twin(replace(ONE_B, workload=replace(ONE_B.workload, sequence=1024))) is None


def test_a_global_batch_that_is_written_out_is_the_same_step():
    written = replace(ONE_B, workload=replace(ONE_B.workload, global_batch=16))
    assert find_twin(written) is find_twin(ONE_B)


def test_a_twin_of_another_rank_is_not_offered_for_one_that_differs():
    found = find_twin(ONE_B)
    assert found is not None
    assert find_twin(ONE_B, ranks=[found.rank]) is found
    assert find_twin(ONE_B, ranks=[rank for rank in range(8) if rank != found.rank]) is None


def test_what_a_twin_held_is_what_is_predicted_to_one_per_cent():
    found = find_twin(ONE_B)
    assert found is not None
    assert pb.training_memory(ONE_B).peak_bytes == pytest.approx(found.peak_bytes, rel=0.01)


def test_a_twin_says_what_it_is():
    words = repr(find_twin(ONE_B)).replace(THIN, " ")
    assert words.startswith("RecordedTwin(llama-3.2-1b, rank 0 of 8: peak 15.4 GB, reserved ")


def test_only_a_chapters_twins_are_given_for_a_chapter():
    assert all(twin.chapter == "01" for twin in recorded_twins("01"))
    assert recorded_twins("no such chapter") == ()
