import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from playbook.program.simulate import simulate
from playbook.schedules import Action
from tests.program.plain_simulator import plain_starts, random_orders

WAYS = [{}, {"receive": "deferred"}, {"blocking_send": True}, {"blocking_send": True, "receive": "deferred"}]


def orders(text):
    return [[Action.parse(cell) for cell in row.split()] for row in text.split("/")]


TWO = orders("0F0 0F1 0F2 / 1F0 1F1 1F2")


def test_an_early_receive_lets_a_message_travel_when_it_is_sent():
    """0F1 ends at 2, its message is there at 4, when 1F0 ends too."""
    timed = simulate(TWO, [0, 1], comm=2)
    assert timed.start.tolist() == [0, 1, 2, 3, 4, 5]
    assert timed.messages.departure.tolist() == [1, 2, 3]


def test_a_deferred_receive_lets_a_message_travel_only_when_its_receiver_is_free():
    """1F0 runs from 3 to 4; the message of 0F1 travels from 4 to 6, that of 0F2 from 7 to 9."""
    timed = simulate(TWO, [0, 1], comm=2, receive="deferred")
    assert timed.start.tolist() == [0, 1, 2, 3, 6, 9]
    assert timed.messages.departure.tolist() == [1, 4, 7]


def test_a_blocking_sender_is_kept_until_its_message_is_there():
    timed = simulate(TWO, [0, 1], comm=2, blocking_send=True)
    assert timed.start.tolist() == [0, 3, 6, 3, 6, 9]
    assert timed.messages.departure.tolist() == [1, 4, 7]


def test_a_blocking_sender_and_a_deferred_receiver_meet_for_every_message():
    """1F0 takes 5, from 3 to 8: the message of 0F1 (ended at 4) travels from 8 to 10 and keeps both."""
    timed = simulate(TWO, [0, 1], forward=[1, 5], comm=2, blocking_send=True, receive="deferred")
    assert timed.start.tolist() == [0, 3, 10, 3, 10, 17]
    assert timed.messages.departure.tolist() == [1, 8, 15]


def test_ranks_that_would_both_send_before_they_receive_deadlock_when_they_meet():
    order = orders("0F0 0F1 0B0 0B1 / 1F0 1B0 1F1 1B1")
    assert simulate(order, [0, 1], comm=1, blocking_send=True).makespan == 12
    assert simulate(order, [0, 1], comm=1, receive="deferred").makespan == 12
    with pytest.raises(
        ValueError,
        match="deadlock: rank 0 stops at the send of 0F1, which waits for the receive of 1F1 on rank 1; "
        "rank 1 stops at the send of 1B0, which waits for the receive of 0B0 on rank 0",
    ):
        simulate(order, [0, 1], comm=1, blocking_send=True, receive="deferred")


def test_gpipe_meets_without_a_deadlock():
    order = orders("0F0 0F1 0B0 0B1 / 1F0 1F1 1B0 1B1")
    assert simulate(order, [0, 1], comm=1, blocking_send=True, receive="deferred").makespan == 13


def test_results_for_the_same_rank_are_no_messages():
    timed = simulate(orders("0F0 1F0 / 2F0"), [0, 0, 1], comm=3, receive="deferred", blocking_send=True)
    assert timed.start.tolist() == [0, 1, 5]
    assert timed.messages.sender.tolist() == [1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"receive": "late"}, "receive='late'; use 'early' or 'deferred'"),
        ({"queue": True, "blocking_send": True}, "leave it or blocking_send=True out"),
    ],
)
def test_ways_of_sending_that_do_not_exist_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        simulate(TWO, [0, 1], **options)


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=40, deadline=None)
@given(
    case=random_orders(),
    costs=st.tuples(*[st.integers(1, 5)] * 4),
    longer=st.none() | st.integers(0, 8),
    comm=st.integers(0, 4),
)
def test_starts_equal_those_of_a_plain_simulator(way, case, costs, longer, comm):
    made, placement = case
    cost = dict(zip("FBIW", costs, strict=True))
    overlap = None if longer is None else max(cost["F"], cost["B"]) + longer

    def length(block):
        return overlap if overlap and len(block) > 1 else sum(cost[action.kind] for action in block)

    names = dict(zip(("forward", "backward", "backward_input", "backward_weight"), costs, strict=True))
    blocking, deferred = "blocking_send" in way, "receive" in way
    comm += blocking and deferred
    expected = plain_starts(made, placement, length, comm, blocking, deferred)
    if expected is None:
        with pytest.raises(ValueError, match="deadlock: rank"):
            simulate(made, placement, **names, overlap=overlap, comm=comm, **way)
        return
    timed = simulate(made, placement, **names, overlap=overlap, comm=comm, **way)
    assert timed.start.tolist() == expected
