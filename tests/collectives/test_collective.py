import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from playbook.collectives import collective
from playbook.spec import Link

LINK = Link(latency_s=1e-6, bandwidth_bytes_per_s=1e9)


@settings(max_examples=50, deadline=None)
@given(n=st.integers(1, 64), chunk=st.integers(0, 10**9))
def test_ring_bytes_and_time_are_the_closed_forms(n, chunk):
    size = n * chunk
    expected = {
        "all_reduce": (2 * (n - 1), 2 * (n - 1) * chunk),
        "all_gather": (n - 1, (n - 1) * chunk),
        "reduce_scatter": (n - 1, (n - 1) * chunk),
    }
    for op, (steps, sent) in expected.items():
        made = collective(op, "ring", n)
        assert made.bytes_sent_per_rank(size) == sent
        assert made.seconds(size, LINK) == pytest.approx(steps * 1e-6 + sent / 1e9)


@settings(max_examples=50, deadline=None)
@given(n=st.integers(2, 64), chunk=st.integers(0, 10**9))
def test_direct_bytes_and_time_are_the_closed_forms(n, chunk):
    size = n * chunk
    expected = {
        "all_reduce": (1, (n - 1) * size),
        "all_gather": (1, (n - 1) * chunk),
        "reduce_scatter": (1, (n - 1) * chunk),
        "all_to_all": (n - 1, (n - 1) * chunk),
        "send_recv": (1, size),
    }
    for op, (steps, sent) in expected.items():
        made = collective(op, "direct", n)
        assert made.bytes_sent_per_rank(size) == sent
        assert made.seconds(size, LINK) == pytest.approx(steps * 1e-6 + sent / 1e9)


@pytest.mark.parametrize(
    ("op", "factor"),
    [
        ("all_reduce", 1.5),
        ("all_gather", 0.75),
        ("reduce_scatter", 0.75),
        ("all_to_all", 0.75),
        ("send_recv", 1),
    ],
)
def test_bus_factors_of_four_ranks_are_those_of_nccl_tests(op, factor):
    assert collective(op, "ring", 4).bus_factor == factor


def test_four_ranks_send_one_and_a_half_times_the_buffer_in_a_ring_all_reduce():
    made = collective("all_reduce", algorithm="ring", ranks=4)
    assert made.bytes_sent_per_rank(1 << 20) == 1_572_864
    assert made.chunk_bytes(1 << 20) == 262_144


def test_a_buffer_that_does_not_divide_is_padded_to_equal_chunks():
    made = collective("all_reduce", "ring", 4)
    assert made.chunk_bytes(10) == 3
    assert made.bytes_sent_per_rank(10) == 18


def test_one_rank_has_nothing_to_do():
    made = collective("all_reduce", "ring", 1)
    assert (made.steps, made.bytes_sent_per_rank(1000), made.seconds(1000, LINK), made.bus_factor) == (
        (),
        0,
        0,
        0,
    )
    assert made.states == (((frozenset({0}),),),)


def test_after_step_3_of_a_ring_all_reduce_on_four_ranks_each_rank_owns_one_finished_chunk():
    made = collective("all_reduce", "ring", 4)
    assert made.finished(3) == (1, 1, 1, 1)
    assert (
        made.summary(3) == "After step 3 of 6 a rank holds 1 of 4 finished chunks; 50% of the bytes are sent."
    )


def test_partial_sums_grow_by_one_rank_a_step():
    made = collective("all_reduce", "ring", 4)
    assert [made.states[step][0][0] for step in range(4)] == [{0}, {0}, {0}, {0, 1, 2, 3}]
    assert [made.states[step][3][0] for step in range(4)] == [{3}, {3}, {1, 2, 3}, {1, 2, 3}]


def test_a_reduce_scatter_ends_with_one_chunk_of_output_and_an_all_reduce_with_all():
    assert collective("reduce_scatter", "ring", 4).result(2) == (2,)
    assert collective("all_reduce", "ring", 4).result(2) == (0, 1, 2, 3)


def test_blocks_of_an_all_to_all_are_named_by_where_they_go():
    made = collective("all_to_all", "direct", 4)
    assert made.chunk_name(6) == "block 1→2"
    assert made.sentences(1)[0] == "rank 0 sends block 0→1 to rank 1 and receives block 3→0 from rank 3"


def test_a_step_outside_the_algorithm_is_refused():
    made = collective("all_reduce", "ring", 4)
    with pytest.raises(ValueError, match="step 7 of all_reduce by ring; use 1 to 6"):
        made.phase_of(7)
    with pytest.raises(ValueError, match="step -1"):
        made.finished(-1)


def test_negative_sizes_are_refused():
    with pytest.raises(ValueError, match="size_bytes=-1"):
        collective("all_reduce").bytes_sent_per_rank(-1)
