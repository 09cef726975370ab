import pytest

from playbook.program.schedule import schedule


def test_a_chunk_takes_all_micro_batches_before_the_next_and_back_in_reverse():
    assert schedule("looped-bfs", 2, 2, 2).to_csv().splitlines() == [
        "0F0,0F1,2F0,2F1,2B1,2B0,0B1,0B0",
        "1F0,1F1,3F0,3F1,3B1,3B0,1B1,1B0",
    ]


@pytest.mark.parametrize(
    ("stages", "microbatches", "makespan", "idle"), [(4, 8, 57, 9), (4, 16, 105, 9), (8, 64, 405, 21)]
)
def test_two_chunks_halve_the_idle_share_of_gpipe(stages, microbatches, makespan, idle):
    timed = schedule("looped-bfs", stages, microbatches, 2).simulate()
    assert (timed.makespan, timed.idle) == (makespan, idle)
    assert timed.peak_live == (2 * microbatches,) * stages


def test_below_one_micro_batch_a_rank_the_second_chunk_waits_both_ways():
    made = schedule("looped-bfs", 4, 3, 2)
    assert made.simulate().idle == 9 + 3
    assert "microbatches=3 is less than stages=4" in (made.note or "")


def test_one_chunk_is_gpipe_with_its_backwards_turned_round():
    made, gpipe = schedule("looped-bfs", 4, 8), schedule("gpipe", 4, 8)
    assert made.order(2)[:8] == gpipe.order(2)[:8]
    assert made.order(2)[8:] == gpipe.order(2)[:7:-1]
    assert made.simulate().makespan == gpipe.simulate().makespan
    assert made.simulate().peak_live == gpipe.simulate().peak_live
    assert "chunks=1: gpipe with its backwards last to first" in (made.note or "")


def test_torch_takes_every_size_and_megatron_none():
    assert schedule("looped-bfs", 4, 3, 2, framework="torch").microbatches == 3
    with pytest.raises(ValueError, match="megatron has no schedule looped-bfs"):
        schedule("looped-bfs", 4, 8, 2, framework="megatron")
