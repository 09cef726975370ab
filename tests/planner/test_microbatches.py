import pytest

from playbook.planner.microbatches import best_microbatches
from playbook.planner.stage_times import StageTimes

# A forward costs 4 + b for b sequences, a backward twice that: kernels get faster a sequence with size.
SIZES = (1, 2, 4, 8, 16)
TIMES = StageTimes(
    sequences=SIZES,
    forward_s=tuple(4.0 + b for b in SIZES),
    backward_s=tuple(8.0 + 2 * b for b in SIZES),
    source="measured:gloo",
)


def test_the_best_lies_between_the_smallest_bubble_and_the_fastest_kernels():
    choice = best_microbatches(TIMES, 4, 16)
    # 1F1B: (m + p − 1)(F + B) = (16 / b + 3) · 3 (4 + b): 285, 198, 168, 180, 240.
    assert [row.step_s for row in choice.rows] == [285, 198, 168, 180, 240]
    assert (choice.best.microbatches, choice.best.micro_batch) == (4, 4)
    assert choice.best.sequences_per_s == pytest.approx(16 / 168)
    assert choice.best.idle_over_makespan == pytest.approx(3 / 7)
    assert choice.smallest_bubble.microbatches == 16
    assert choice.fastest_kernels.microbatches == 1
    assert choice.fastest_kernels.forward_s_per_sequence == 20 / 16


def test_words_give_both_ends_and_the_compromise():
    text = repr(best_microbatches(TIMES, 4, 16))
    assert "1f1b with m = 4 micro-batches of 4 is fastest" in text
    assert "smallest bubble: m = 16" in text
    assert "fastest kernels: m = 1" in text
    assert "simulated from times measured:gloo" in text


def test_memory_counts_sequences_and_moves_the_best():
    choice = best_microbatches(TIMES, 4, 16, memory_cap_sequences=8)
    # Rank 0 of 1F1B keeps min(m, 4) micro-batches: 4, 8, 16, 16, 16 sequences.
    assert [row.sequences_alive for row in choice.rows] == [4, 8, 16, 16, 16]
    assert choice.best.micro_batch == 2
    with pytest.raises(
        ValueError, match="nothing fits; 1f1b with m = 16 has the fewest sequences alive, 4; use 4"
    ):
        best_microbatches(TIMES, 4, 16, memory_cap_sequences=3)


def test_messages_may_grow_with_the_micro_batch():
    none = best_microbatches(TIMES, 4, 16)
    grown = best_microbatches(TIMES, 4, 16, comm=lambda sequences: 0.5 * sequences)
    # GPipe-like critical path: three hops down and three up.
    assert grown.rows[-1].step_s == none.rows[-1].step_s + 6 * 8


def test_several_schedules_are_tried_and_chunks_share_the_stage():
    choice = best_microbatches(TIMES, 4, 16, schedules=("1f1b", "interleaved-1f1b"), chunks=2)
    rows = {(row.schedule, row.microbatches): row for row in choice.rows}
    # Interleaving halves the bubble where p divides m: (m + 3 / 2) · 3 (4 + b).
    assert rows["interleaved-1f1b", 4].step_s == pytest.approx(5.5 * 24)
    assert choice.best.schedule == "interleaved-1f1b"
    assert list(choice.table.columns)[:3] == ["schedule", "microbatches", "micro_batch"]


def test_a_split_backward_needs_its_times():
    choice = best_microbatches(TIMES, 2, 4, schedules=("1f1b", "zb-h1"))
    assert {row.schedule for row in choice.rows} == {"1f1b"}
    assert choice.refused["zb-h1 at m = 4"].startswith("splits backward, and the table has no")
    with pytest.raises(ValueError, match="no schedule can be timed; zb-h1 at m = 4: splits backward"):
        best_microbatches(TIMES, 2, 4, schedules="zb-h1")


def test_with_its_times_a_split_backward_is_chosen():
    split = StageTimes(
        sequences=SIZES, forward_s=(1,) * 5, backward_input_s=(1,) * 5, backward_weight_s=(1,) * 5
    )
    choice = best_microbatches(split, 4, 16, schedules=("1f1b", "zb-h1"))
    assert choice.best.schedule == "zb-h1"


def test_a_batch_that_no_size_divides_is_refused():
    times = StageTimes(sequences=(3, 4), forward_s=(1, 1), backward_s=(1, 1))
    with pytest.raises(ValueError, match="global_batch=10 has no divisor from 3 to 4"):
        best_microbatches(times, 2, 10)


def test_fewer_micro_batches_than_stages_are_not_praised():
    # A forward costs almost the same for 1 and 8 sequences, so one micro-batch of 8 is least slow.
    flat = StageTimes(sequences=(1, 2, 4, 8), forward_s=(1, 1.1, 1.2, 1.3), backward_s=(2, 2.2, 2.4, 2.6))
    text = repr(best_microbatches(flat, 4, 8))
    # One micro-batch passes 4 ranks one after the other: 3/4 idle, and no more than one rank's work.
    assert "m = 1 micro-batch of 8 is the least slow" in text
    assert "75.0\N{THIN SPACE}% of the ranks' time is idle, 4 ranks do the work of 1.00" in text
    assert "pipelining does not pay at this size on these times" in text
    assert "is fastest" not in text


def test_one_candidate_is_no_comparison():
    text = repr(best_microbatches(TIMES, 4, 17))
    assert "m = 17 micro-batches of 1" in text
    assert "nothing to compare: of the divisors of 17, only 1 could be timed" in text
    assert "a micro-batch must divide the batch: of 24 the measured sizes could be compared" in text
    assert "fastest" not in text
    assert "smallest bubble" not in text


def test_what_are_no_stage_times_is_refused_in_words():
    with pytest.raises(TypeError, match=r"times=int\(...\) must be StageTimes, .* pb.measure_stage_times"):
        best_microbatches(3, 4, 32)
