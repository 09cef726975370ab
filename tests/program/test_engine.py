import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from playbook.program.engine import run_streams


def test_rows_of_one_stream_run_one_after_the_other():
    assert run_streams([2, 3, 1], [0, 0, 0]).tolist() == [0, 2, 5]


def test_streams_run_side_by_side():
    assert run_streams([2, 3, 1], [0, 1, 0]).tolist() == [0, 0, 2]


def test_a_row_starts_when_all_that_it_waits_for_has_ended():
    assert run_streams([2, 5, 1], [0, 1, 2], ([2, 2], [0, 1])).tolist() == [0, 0, 5]


def test_a_row_may_wait_for_many_that_end_in_any_order():
    """Row 4 waits for four rows, with delays; the latest is row 2: 7 + 3."""
    waits = ([4, 4, 4, 4], [0, 1, 2, 3])
    start = run_streams([1, 2, 7, 9, 1], [1, 2, 3, 4, 0], waits, delays=[0, 1, 3, 0])
    assert start.tolist() == [0, 0, 0, 0, 10]
    assert run_streams([1, 9, 7, 2], [1, 2, 3, 0], ([3, 3, 3, 3], [0, 1, 2, 1])).tolist()[3] == 9


@pytest.mark.parametrize("last", [[3, 1, 2], [1, 3, 2], [1, 2, 3]])
def test_a_cycle_is_named_through_whichever_wait_it_goes(last):
    """Row 0 waits for rows 1 and 2, which run, and for row 3, which waits for row 0."""
    waits = ([0, 0, 0, 3], [*last, 0])
    with pytest.raises(ValueError, match="stream 0 stops at row 0, which waits for row 3 on stream 3"):
        run_streams([1, 1, 1, 1], [0, 1, 2, 3], waits)


def test_a_wait_may_name_a_row_that_stands_later():
    assert run_streams([1, 4], [0, 1], ([0], [1])).tolist() == [4, 0]


def test_a_prefetched_gather_hides_behind_the_block_before():
    """Blocks take 4 and gathers 3 on their own stream: only the first gather is waited for."""
    durations = [3, 3, 3, 4, 4, 4]
    stream = [1, 1, 1, 0, 0, 0]
    start = run_streams(durations, stream, ([3, 4, 5], [0, 1, 2]))
    assert start.tolist() == [0, 3, 6, 3, 7, 11]


def test_a_delay_passes_between_end_and_start_and_occupies_no_stream():
    start = run_streams([1, 1, 1], [0, 0, 1], ([2], [0]), delays=5)
    assert start.tolist() == [0, 1, 6]


def test_a_hold_keeps_the_stream_but_not_those_who_wait():
    start = run_streams([1, 1, 1], [0, 0, 1], ([2], [0]), holds=[5, 0, 0])
    assert start.tolist() == [0, 6, 1]


def test_no_rows_take_no_time():
    assert run_streams([], []).size == 0


def test_rows_that_wait_for_each_other_are_named_with_their_cycle():
    with pytest.raises(
        ValueError,
        match="deadlock: stream 0 stops at row 0, which waits for row 3 on stream 1; "
        "stream 1 stops at row 2, which waits for row 1 on stream 0",
    ):
        run_streams([1, 1, 1, 1], [0, 0, 1, 1], ([0, 2], [3, 1]))


def test_a_row_that_waits_for_a_later_one_on_its_own_stream_is_a_cycle_of_one():
    with pytest.raises(
        ValueError, match="stream 0 stops at row 0, which waits for row 1 on stream 0; change"
    ):
        run_streams([1, 1], [0, 0], ([0], [1]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1, 2], [0]), "2 durations but 1 streams"),
        (([-1], [0]), "negative or not finite"),
        (([float("nan")], [0]), "negative or not finite"),
        (([1], [0], ([0], [1])), "outside 0..0"),
        (([1], [0], ([0], [])), "1 waiters but 0 awaited"),
        (([1], [-1]), "stream -1 is negative"),
    ],
)
def test_rows_that_do_not_fit_together_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        run_streams(*arguments)


def plain_starts(durations, stream, waits):
    """The same by relaxing every constraint until none moves a start."""
    start = [0.0] * len(durations)
    for _ in range(len(durations) + 1):
        for row in range(len(durations)):
            before = [other for other in range(row) if stream[other] == stream[row]][-1:]
            needs = before + [awaited for waiter, awaited in waits if waiter == row]
            start[row] = max([start[other] + durations[other] for other in needs], default=0.0)
    return start


@settings(max_examples=50, deadline=None)
@given(data=st.data(), rows=st.integers(1, 12))
def test_starts_equal_those_of_plain_relaxation(data, rows):
    durations = data.draw(st.lists(st.integers(0, 9), min_size=rows, max_size=rows))
    stream = data.draw(st.lists(st.integers(0, 3), min_size=rows, max_size=rows))
    earlier = st.integers(1, max(rows - 1, 1)).flatmap(lambda w: st.tuples(st.just(w), st.integers(0, w - 1)))
    waits = data.draw(st.lists(earlier, max_size=10)) if rows > 1 else []
    pairs = tuple(np.array(waits, dtype=int).reshape(-1, 2).T)
    assert run_streams(durations, stream, pairs).tolist() == plain_starts(durations, stream, waits)
