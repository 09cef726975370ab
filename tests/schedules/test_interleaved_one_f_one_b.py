import pytest

from playbook.program.schedule import schedule


def test_the_order_of_a_small_pipeline_is_the_one_in_the_paper():
    assert schedule("interleaved-1f1b", 2, 2, 2).to_csv().splitlines() == [
        "0F0,0F1,2F0,2F1,2B0,2B1,0B0,0B1",
        "1F0,1F1,3F0,3B0,3F1,3B1,1B0,1B1",
    ]


def test_warm_up_has_two_forwards_for_each_rank_below_and_a_round_for_each_other_chunk():
    assert schedule("interleaved-1f1b", 4, 8, 2).warmup == (10, 8, 6, 4)


@pytest.mark.parametrize(
    ("stages", "microbatches", "makespan", "idle"),
    [(4, 8, 57, 9), (4, 16, 105, 9), (8, 64, 405, 21), (4, 4, 33, 9)],
)
def test_two_chunks_halve_the_idle_share(stages, microbatches, makespan, idle):
    timed = schedule("interleaved-1f1b", stages, microbatches, 2).simulate()
    assert (timed.makespan, timed.idle) == (makespan, idle)


def test_eight_stages_two_chunks_idle_half_of_what_1f1b_does():
    timed = schedule("interleaved-1f1b", 8, 64, 2).simulate()
    assert timed.idle_over_ideal == pytest.approx(0.0546875)
    assert timed.peak_live == (23, 21, 19, 17, 15, 13, 11, 9)


def test_two_chunks_hold_1_plus_p_minus_1_over_pv_of_what_1f1b_does():
    """Korthikanti et al., Reducing Activation Recomputation, 2022: 1 + (p − 1)/(p v)."""
    chunks = max(schedule("interleaved-1f1b", 8, 64, 2).simulate().peak_live)
    assert chunks / 2 / max(schedule("1f1b", 8, 64).simulate().peak_live) == 1 + 7 / 16 == 1.4375


def test_peak_live_at_four_stages_is_v_minus_1_p_plus_the_warm_up():
    assert schedule("interleaved-1f1b", 4, 8, 2).simulate().peak_live == (11, 9, 7, 5)


def test_a_delay_of_a_tenth_per_hop_stretches_57_to_58_4():
    assert schedule("interleaved-1f1b", 4, 8, 2).simulate(comm=0.1).makespan == pytest.approx(58.4)


def test_below_one_micro_batch_a_stage_the_missing_slots_are_paid_too():
    made = schedule("interleaved-1f1b", 4, 3, 2)
    assert made.simulate().idle == 12
    assert made.note is not None
    assert "no multiple of stages=4" in made.note


def test_one_chunk_is_plain_1f1b():
    assert schedule("interleaved-1f1b", 4, 7, 1).orders == schedule("1f1b", 4, 7).orders


def test_megatron_wants_whole_groups():
    with pytest.raises(ValueError, match="microbatches=9 with stages=4.*use microbatches=8 or 12"):
        schedule("interleaved-1f1b", 4, 9, 2, framework="megatron")


def test_torch_wants_equal_rounds_and_takes_seven_in_one():
    with pytest.raises(ValueError, match="torch runs 2 rounds.*use microbatches=8 or 10"):
        schedule("interleaved-1f1b", 4, 9, 2, framework="torch")
    assert schedule("interleaved-1f1b", 4, 7, 2, framework="torch").note is not None


def test_one_chunk_is_1f1b_and_says_so():
    made = schedule("interleaved-1f1b", 4, 7)
    assert made.orders == schedule("1f1b", 4, 7).orders
    assert made.note == "chunks=1: the same order as 1f1b; give chunks=2 or more to interleave"
    assert schedule("interleaved-1f1b", 4, 8, 2).note is None
