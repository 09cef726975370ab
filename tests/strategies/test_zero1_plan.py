from dataclasses import replace

import pytest

import playbook as pb
from playbook.predict.stages import blocks_of, context
from playbook.program.state import int_of

PSI = 4 * 30_848 + 16_448


def test_optimizer_state_is_shared_and_the_rest_is_whole(scenario):
    state = pb.program(scenario(dp=2, zero=1)).memory().state
    assert state == {
        "parameters": 2 * PSI,
        "gradients": 2 * PSI,
        "optimizer": 4 * PSI,
        "master_weights": 2 * PSI,
    }
    assert sum(state.values()) == 4 * PSI + 12 * PSI // 2


def test_gradients_are_scattered_and_parameters_gathered_after_the_step(scenario):
    found = pb.traffic(scenario(dp=2, zero=1))
    assert found.by_collective == {"reduce_scatter@dp": 2 * PSI, "all_gather@dp": 2 * PSI}
    assert found.select(collective="all_gather", phase="O").count == 5
    assert found.wire_bytes == pytest.approx(2 * (2 - 1) / 2 * 2 * PSI)


def test_a_shard_that_does_not_divide_is_rounded_up_unit_by_unit(scenario):
    state = pb.program(scenario(dp=7, zero=1)).memory().state
    # ceil(30 848 / 7) = 4407, ceil(16 448 / 7) = 2350, and the ends' two blocks are rounded apart.
    assert state["master_weights"] == 4 * (4 * 4407 + 1171 + 1180)


def test_whole_parameters_of_all_chunks_of_a_rank_are_handed_out_together(scenario):
    """PyTorch gives the largest first, each to the rank with least; pipeline rank 0 has layers 0 and 2."""
    s = scenario("torch", pp=2, dp=2, zero=1, schedule="interleaved-1f1b", chunks=2, global_batch=4)
    # Table 8192; of each layer gate, up and down 6144, q and o 4096, k and v 2048, two norms of 64.
    assert [masters(s, 0, slot) for slot in (0, 2)] == [8192 + 6144 + 2 * 4096 + 64, 6144 + 4096 + 2048 + 64]
    assert [masters(s, 1, slot) for slot in (0, 2)] == [2 * 6144 + 2 * 2048 + 64, 2 * 6144 + 4096 + 2048 + 64]
    first, second = [8192, *[6144] * 2, *[4096] * 3, 2048, 64, 64], [*[6144] * 4, 4096, *[2048] * 3, 64, 64]
    sent = pb.traffic(s, 0).select(collective="broadcast", phase="O")
    assert sent.payload.tolist() == [2 * numel for numel in (*first, *second)]


def test_ranks_of_a_pipeline_with_chunks_are_laid_apart_where_their_shares_differ(scenario, small):
    deep, cut = replace(small, layers=6), {"pp": 2, "chunks": 3, "schedule": "interleaved-1f1b"}
    s = scenario("torch", model=deep, dp=4, zero=1, global_batch=8, **cut)
    alone = [pb.program(s, s.layout.rank(pp=place)).memory().peak_bytes for place in (0, 1)]
    assert [stage["peak_bytes"] for stage in pb.training_memory(s).per_stage] == alone


def masters(s, rank, slot):
    """Elements of the master weights that a rank holds of a stage."""
    tensors = [tensor for block in blocks_of(s, slot, context(s, rank)) for tensor in block.tensors]
    return sum(int_of(tensor.bytes) for tensor in tensors if tensor.name == "master weights") // 4
