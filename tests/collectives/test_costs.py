import math

import pytest

from playbook.collectives import collective_costs
from playbook.spec import Link

LINK = Link(latency_s=10e-6, bandwidth_bytes_per_s=1e9)


def test_the_table_has_a_row_for_every_algorithm_and_size():
    table = collective_costs("all_reduce", 4, [1000, 2000], LINK)
    assert set(zip(table["algorithm"], table["bytes"], strict=True)) >= {
        ("ring", 1000),
        ("ring", 2000),
        ("direct", 1000),
        ("direct", 2000),
    }
    assert set(table["source"]) == {"formula"}


def test_a_small_buffer_is_faster_directly_and_a_large_one_by_the_ring():
    table = collective_costs("all_reduce", 8, [1000, 1_000_000_000], LINK)
    seconds = table.set_index(["algorithm", "bytes"])["seconds"]
    assert seconds["direct", 1000] < seconds["ring", 1000]
    assert seconds["ring", 1_000_000_000] < seconds["direct", 1_000_000_000]


def test_bandwidths_follow_nccl_tests():
    row = collective_costs("all_reduce", 4, 4_000_000, LINK).set_index("algorithm").loc["ring"]
    assert row["seconds"] == pytest.approx(6 * 10e-6 + 6_000_000 / 1e9)
    assert row["algbw"] == pytest.approx(4_000_000 / 0.00606)
    assert row["busbw"] == pytest.approx(1.5 * 4_000_000 / 0.00606)


def test_one_rank_takes_no_time_and_has_no_bandwidth():
    row = collective_costs("all_gather", 1, 1000, LINK).iloc[0]
    assert row["seconds"] == 0
    assert math.isnan(row["algbw"])
