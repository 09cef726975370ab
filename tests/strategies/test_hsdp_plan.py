"""Hybrid sharding by plan: state of a replica, what is summed between replicas, and where it lies."""

import pytest

import playbook as pb
from playbook.frameworks import policy
from playbook.program.block import Weight
from playbook.program.policy import Context
from playbook.program.state import own_rows
from playbook.spec import Layout, recipe
from playbook.strategies import plan

LAYER, ROOT = 30_848, 16_448
PSI = 4 * LAYER + ROOT
MIXED = {"recipe": "fsdp2-mixed"}


@pytest.mark.parametrize(("dp", "cp", "replicas"), [(8, 1, 2), (8, 1, 4), (4, 2, 2)])
def test_state_is_sixteen_bytes_over_the_ranks_of_a_replica(scenario, dp, cp, replicas):
    s = scenario(dp=dp, cp=cp, dp_replicate=replicas, zero=3)
    assert sum(pb.program(s).memory().state.values()) == 16 * PSI // (8 // replicas)


def test_a_replica_gathers_and_scatters_as_its_ranks_alone_would(scenario):
    hybrid = pb.traffic(scenario("torch", dp=4, dp_replicate=2, zero=3, **MIXED)).select(axis="dp")
    alone = pb.traffic(scenario("torch", dp=2, zero=3, **MIXED)).select(axis="dp")
    assert hybrid.by_collective == alone.by_collective
    assert hybrid.wire_bytes == alone.wire_bytes


def test_each_shard_is_summed_between_replicas_once(scenario):
    """2 (R − 1)/R of G/N bytes: gradients of 4 bytes, N = 2 shards, R = 4 replicas."""
    found = pb.traffic(scenario("torch", dp=8, dp_replicate=4, zero=3, **MIXED)).select(axis="dp_replicate")
    assert found.by_collective == {"all_reduce@dp_replicate": 4 * PSI // 2}
    assert found.wire_bytes == 2 * 3 / 4 * 4 * PSI / 2
    ids = found.table["op"].tolist()
    assert ids == [f"m0/B/layers.{n}/all_reduce@dp_replicate#0" for n in (3, 2, 1, 0)] + [
        "m0/B//all_reduce@dp_replicate#0"
    ]


def test_the_whole_traffic_is_that_of_the_table(scenario):
    """2·r·P + r·G + 2 (R − 1)/R · G/N with r = (N − 1)/N, for FP32 parameters and gradients."""
    shards, replicas = 2, 2
    found = pb.traffic(scenario("torch", dp=4, dp_replicate=replicas, zero=3, recipe="fp32"))
    r = (shards - 1) / shards
    assert found.wire_bytes == 4 * PSI * (3 * r + 2 * (replicas - 1) / replicas / shards)


@pytest.mark.parametrize("zero", [1, 2])
def test_earlier_stages_share_inside_a_replica_too(scenario, zero):
    s = scenario(dp=4, dp_replicate=2, zero=zero)
    expected = {1: 4 * PSI + 12 * PSI // 2, 2: 2 * PSI + 14 * PSI // 2}
    assert sum(pb.program(s).memory().state.values()) == expected[zero]
    assert pb.traffic(s).select(axis="dp_replicate").payload_bytes == 2 * PSI // 2


def test_shards_that_do_not_divide_are_owned_by_the_first_ranks_of_each_replica():
    weight = Weight(name="w", shape=(5, 2))
    owned = [
        own_rows(
            weight,
            Context(
                policy=policy("torch"),
                recipe=recipe("fp32"),
                dp=4,
                cp=2,
                dp_replicate=2,
                dp_rank=d,
                cp_rank=c,
            ),
        )
        for d in range(4)
        for c in range(2)
    ]
    assert owned == [4, 4, 2, 0, 4, 4, 2, 0]


def test_replicas_of_what_is_not_shared_are_refused(scenario):
    with pytest.raises(
        ValueError, match=r"dp_replicate=2 with zero=0: .*use dp_replicate=1, or zero=3 \(HSDP\)"
    ):
        pb.program(scenario(dp=4, dp_replicate=2))
    with pytest.raises(ValueError, match="replicas of shards in FSDP2 only; use zero=3"):
        pb.program(scenario("torch", dp=4, dp_replicate=2, zero=1, recipe="fp32"))


def test_its_run_has_two_replicas_unless_told_otherwise():
    assert plan("hsdp").scenario(4).layout == Layout(dp=4, dp_replicate=2, zero=3)
    assert plan("hsdp").scenario(8, dp_replicate=4).layout.shard_ranks == 2
