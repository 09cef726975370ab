"""Strategies compose without a third code: bytes by hand for pairs that know nothing of each other."""

from dataclasses import replace

import pytest

import playbook as pb
from playbook.predict.stages import blocks_of, context
from tests.shapes import SMALL
from tests.shapes import scenario_of as scenario

LAYER = 64 * 64 + 2 * 64 * 32 + 64 * 64 + 3 * 64 * 96 + 2 * 64  # 30 848
NORMS = 2 * 64
TABLE, LAST_NORM = 128 * 64, 64
STREAM = 2 * 32 * 64


def column(walk, row, term):
    return walk.levels[row][walk.term_names.index(term)]


class TestShardingInAPipeline:
    """Two stages of two layers, two data-parallel ranks, four micro-batches."""

    def test_each_stage_shares_its_own_state(self):
        s = scenario(pp=2, dp=2, zero=3, global_batch=8)
        state = [sum(pb.program(s, s.layout.rank(pp=stage)).memory().state.values()) for stage in (0, 1)]
        assert state == [16 * (2 * LAYER + TABLE) // 2, 16 * (2 * LAYER + TABLE + LAST_NORM) // 2]

    def test_freed_parameters_are_gathered_twice_a_micro_batch(self):
        s = scenario("torch", pp=2, dp=2, zero=3, global_batch=8, recipe="fsdp2-mixed")
        found = pb.traffic(s, 0)
        # Two layers and the root, forward and backward, four micro-batches.
        assert found.select(axis="dp", collective="all_gather").count == 3 * 2 * 4
        assert found.select(axis="dp", collective="all_gather").payload_bytes == 8 * 2 * (2 * LAYER + TABLE)
        assert found.select(axis="pp", collective="send").payload_bytes == 4 * STREAM

    def test_kept_parameters_are_one_storage_however_many_micro_batches_are_in_flight(self):
        s = scenario("torch", pp=2, dp=2, zero=3, reshard=False, global_batch=8, recipe="fsdp2-mixed")
        program = pb.program(s, 0)
        walk = program.memory()
        assert pb.traffic(s, 0).select(collective="all_gather").count == 3
        most = max(column(walk, row, "unsharded") for row in range(len(program)))
        assert most == 2 * (2 * LAYER + TABLE)

    def test_the_second_micro_batch_in_flight_adds_what_its_layers_keep(self):
        one, two = (scenario(pp=2, dp=2, zero=3, global_batch=batch) for batch in (2, 4))
        peaks = [pb.program(s, 0).memory().peak_bytes for s in (one, two)]
        per_layer = 32 * (2 * 64 * 2 + 2 * 64 + 4 * 32 + 2 * 64 + 4 * 4 + 4 * 64 + 6 * 96)
        assert peaks[1] - peaks[0] == 2 * per_layer


class TestSplittingUnderSharding:
    """Two tensor-parallel by two data-parallel ranks."""

    @pytest.mark.parametrize("framework", ["textbook", "torch"])
    def test_gathers_bring_what_tensor_parallelism_left(self, framework):
        s = scenario(framework, tp=2, dp=2, zero=3, recipe="bf16")
        share = (LAYER - NORMS) // 2 + NORMS
        layers = [
            row.payload_bytes
            for row in pb.traffic(s).select(axis="dp", collective="all_gather").table.itertuples()
            if "layers" in row.op
        ]
        assert layers == [2 * share] * 8

    def test_state_is_divided_by_both(self):
        s = scenario(tp=2, dp=2, zero=3)
        share = 4 * ((LAYER - NORMS) // 2 + NORMS) + TABLE + LAST_NORM
        assert sum(pb.program(s).memory().state.values()) == 16 * share // 2

    def test_four_all_reduces_a_layer_stay(self):
        s = scenario("torch", tp=2, dp=2, zero=3, recipe="bf16")
        ops = [op for op in pb.traffic(s).select(axis="tp").table["op"] if "layers.2/" in op]
        assert len(ops) == 4

    def test_activations_are_those_of_tensor_parallelism_alone(self):
        alone, both = (pb.program(scenario(tp=2, dp=dp, zero=zero)).memory() for dp, zero in ((1, 0), (2, 3)))
        assert alone.terms["activations"] == both.terms["activations"]


class TestSplittingInAPipeline:
    """Two tensor-parallel ranks in each of two stages."""

    def test_messages_are_the_whole_stream_and_under_sequence_parallelism_its_shard(self):
        plain, shard = (
            scenario(tp=2, pp=2, sequence_parallel=flag, global_batch=2) for flag in (False, True)
        )
        sends = [pb.traffic(s).select(axis="pp", collective="send").payload.tolist() for s in (plain, shard)]
        assert sends == [[STREAM] * 2, [STREAM // 2] * 2]

    def test_each_stage_adds_partial_sums_for_its_own_layers(self):
        s = scenario(tp=2, pp=2, global_batch=2)
        ops = pb.traffic(s, s.layout.rank(pp=1)).select(axis="tp").table["op"].tolist()
        layers = [op for op in ops if "layers" in op]
        assert len(layers) == 2 * 4 * 2
        assert {op.split("/")[2] for op in layers} == {"layers.2", "layers.3"}

    def test_parameters_are_divided_by_both(self):
        s = scenario(tp=2, pp=2)
        share = 2 * ((LAYER - NORMS) // 2 + NORMS) + TABLE // 2
        assert pb.program(s).memory().state["parameters"] == 2 * share


def test_all_three_together_agree_with_the_product_of_their_parts():
    s = scenario("torch", tp=2, pp=2, dp=2, zero=3, global_batch=4, recipe="fsdp2-mixed", recompute="full")
    share = 2 * ((LAYER - NORMS) // 2 + NORMS) + TABLE // 2
    found = pb.program(s)
    state = found.memory().state
    assert (state["parameters"], state["optimizer"]) == (4 * share // 2, 8 * share // 2)
    assert {axis: pb.traffic(s).select(axis=axis).count > 0 for axis in ("dp", "tp", "pp")} == dict.fromkeys(
        ("dp", "tp", "pp"), True
    )


def test_equal_layers_stay_one_object_so_that_laying_is_fast():
    s = scenario("transformers", dp=2, zero=3, recompute="full", recipe="fsdp2-mixed")
    blocks = blocks_of(s, 0, context(s))
    assert len({id(block) for block in blocks[1:-1]}) == 1


def test_a_tied_head_in_a_pipeline_holds_a_second_copy_of_the_table():
    s = scenario(model=replace(SMALL, tied=True), pp=2)
    state = [pb.program(s, rank).memory().state["parameters"] for rank in (0, 1)]
    assert state == [2 * (2 * LAYER + TABLE), 2 * (2 * LAYER + TABLE + LAST_NORM)]
