import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from playbook.program.schedule import schedule
from playbook.program.simulate import simulate
from playbook.schedules import Action
from tests.program.plain_simulator import plain_starts, random_orders

MEETING = {"blocking_send": True, "receive": "deferred"}
WAYS = [
    *({}, {"receive": "deferred"}, {"blocking_send": True}),
    *({"queue": True}, {"queue": True, "receive": "deferred"}, MEETING),
]


def orders(text):
    return [[Action.parse(cell) for cell in row.split()] for row in text.split("/")]


TWO = orders("0F0 0F1 0F2 / 1F0 1F1 1F2")
BACK = orders("0F0 0B0 / 1F0 1B0")


def test_each_wait_has_its_cause_and_the_part_that_a_message_was_under_way():
    """1F0 starts at 3 (0F0 ended at 2, one on the way); 0B0 at 9: 1B0 ended at 8, rank 0 is free since 2."""
    timed = simulate(BACK, [0, 1], forward=2, backward=3, comm=1)
    assert timed.start.tolist() == [0, 9, 3, 5]
    assert timed.cause.tolist() == [-1, 3, 0, -1]
    assert timed.waited.tolist() == [0, 7, 3, 0]
    assert timed.in_flight.tolist() == [0, 1, 1, 0]
    assert timed.exposed_communication == (1, 1)


def test_a_wait_is_told_in_words():
    timed = simulate(BACK, [0, 1], forward=2, backward=3, comm=0.25)
    assert timed.wait_words(1) == "waits for 1B0 of rank 1; 0.25 of it the message's way"
    assert timed.wait_words(0) == ""
    assert simulate(BACK, [0, 1]).wait_words(1) == "waits for 1B0 of rank 1"


def test_a_message_that_came_while_the_rank_worked_is_not_waited_for():
    timed = simulate(TWO, [0, 1], forward=[1, 5], comm=2)
    assert timed.cause.tolist() == [-1, -1, -1, 0, -1, -1]
    assert timed.exposed_communication == (0, 2)


def test_a_deferred_receive_is_waited_for_while_its_message_travels():
    timed = simulate(TWO, [0, 1], comm=2, receive="deferred")
    assert timed.waited.tolist() == [0, 0, 0, 3, 2, 2]
    assert timed.in_flight.tolist() == [0, 0, 0, 2, 2, 2]
    assert timed.wait_words(4) == "waits for 0F1 of rank 0; all of it the message's way"


def test_a_kept_sender_waits_for_its_own_message():
    timed = simulate(TWO, [0, 1], comm=2, blocking_send=True)
    assert timed.cause.tolist() == [-1, 0, 1, 0, 1, 2]
    assert timed.in_flight.tolist() == [0, 2, 2, 2, 2, 2]
    assert timed.wait_words(1) == "waits until 0F0 has reached rank 1; all of it the message's way"


def test_a_sender_that_waits_for_a_busy_receiver_names_what_keeps_that():
    """0F1 ends at 4; rank 1 runs 1F0 until 8, then the message takes 2: rank 0 waits 6, 2 of it the way."""
    timed = simulate(TWO, [0, 1], forward=[1, 5], comm=2, blocking_send=True, receive="deferred")
    row = timed.labels.index("0F2")
    assert (timed.waited[row], timed.in_flight[row]) == (6, 2)
    assert timed.labels[timed.cause[row]] == "1F0"
    assert timed.wait_words(row) == "waits until 0F1 has reached rank 1; 2 of it the message's way"


def test_the_wait_of_an_overlapped_pair_is_its_first_actions():
    """The pair needs 0F1 (ends at 2) and 2B0 (ends at 5, one on the way)."""
    made = [
        [Action(0, "F", 0), Action(0, "F", 1), Action(0, "B", 0), Action(0, "B", 1)],
        [Action(1, "F", 0), Action(1, "F", 1), Action(1, "B", 0, True), Action(1, "B", 1)],
        [Action(2, "F", 0), Action(2, "B", 0), Action(2, "F", 1), Action(2, "B", 1)],
    ]
    timed = simulate(made, [0, 1, 2], backward=1, overlap=2, comm=1)
    first = timed.labels.index("1F1")
    assert timed.start[first] == timed.start[first + 1] == 7
    assert timed.labels[timed.cause[first]] == "2B0"
    assert (timed.waited[first], timed.in_flight[first]) == (4, 1)
    assert (timed.cause[first + 1], timed.waited[first + 1]) == (-1, 0)
    assert timed.wait_words(first + 1) == timed.wait_words(first)


def test_one_rank_waits_for_nothing():
    timed = schedule("1f1b", 1, 4).simulate(comm=1)
    assert (timed.cause == -1).all()
    assert timed.exposed_communication == (0,)
    assert timed.wait_words(3) == ""


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=30, deadline=None)
@given(case=random_orders(), costs=st.tuples(*[st.integers(1, 5)] * 4), comm=st.integers(0, 4))
def test_waits_and_work_fill_the_step_and_no_action_starts_before_its_cause_ends(way, case, costs, comm):
    made, placement = case
    names = dict(zip(("forward", "backward", "backward_input", "backward_weight"), costs, strict=True))
    kinds = dict(zip("FBIW", costs, strict=True))
    if way == MEETING:
        comm += 1
        runs = plain_starts(
            made,
            placement,
            lambda block: sum(kinds[a.kind] for a in block),
            comm,
            blocking=True,
            deferred=True,
        )
        assume(runs is not None)
    timed = simulate(made, placement, **names, comm=comm, **way)
    assert (timed.waited >= 0).all()
    assert (timed.in_flight >= 0).all()
    assert (timed.in_flight <= timed.waited).all()
    assert (timed.in_flight <= 2 * comm).all()
    assert ((timed.cause >= 0) == (timed.waited > 0)).all()
    caused = np.flatnonzero(timed.cause >= 0)
    assert (timed.end[timed.cause[caused]] <= timed.start[caused]).all()
    for rank in range(timed.ranks):
        mine = slice(timed.bounds[rank], timed.bounds[rank + 1])
        assert timed.waited[mine].sum() + timed.work[rank] == timed.end[mine][-1]
