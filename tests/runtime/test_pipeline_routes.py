"""Ways of messages: between the right ranks, told apart by tags, received in the order of the sends."""

import pytest

from playbook.program.schedule import schedule, schedule_from_orders
from playbook.runtime.faults import GRADIENT_OF_FIRST
from playbook.runtime.pipeline_routes import blocks_of, expected_by, route_in, route_out
from playbook.schedules import Action, plans
from playbook.schedules.orders import parse_orders

SPLIT = {"zb-h1", "zb-h2", "interleaved-zero-bubble", "zbv", "v-half", "v-min", "dualpipe", "dualpipe-v"}


def made(name, ranks=4, microbatches=8):
    return schedule(name, ranks, microbatches)


def every(order):
    return [action for rank in order.orders for action in rank]


def test_hidden_states_go_to_the_stage_after_and_gradients_to_the_one_before():
    order = made("1f1b")
    out = route_out(order, Action(1, "F", 2))
    assert (out.sender, out.receiver, out.own, out.peer, out.travels) == (1, 2, 1, 2, True)
    back = route_out(order, Action(1, "B", 2))
    assert (back.sender, back.receiver, back.peer, back.forward) == (1, 0, 0, False)
    into = route_in(order, Action(2, "F", 2))
    assert (into.sender, into.receiver, into.own, into.peer) == (1, 2, 2, 1)
    assert into.tag == out.tag != back.tag


def test_ends_and_weights_pass_nothing():
    order = made("zb-h1")
    for action in (Action(3, "F", 0), Action(0, "I", 0), Action(1, "W", 0)):
        assert not route_out(order, action).travels
    for action in (Action(0, "F", 0), Action(3, "I", 0), Action(1, "W", 0)):
        assert not route_in(order, action).travels


def test_the_turn_of_a_v_stays_on_its_rank():
    order = made("zbv")
    turn = route_out(order, Action(3, "F", 0))
    assert turn.local
    assert not turn.travels
    assert route_in(order, Action(4, "F", 0)).tag == turn.tag


def test_chains_end_where_the_other_begins():
    order = made("dualpipe")
    assert not route_out(order, Action(3, "F", 0)).travels
    assert not route_in(order, Action(4, "F", 4)).travels
    # stage 4 is on rank 3 and sends up to rank 2
    up = route_out(order, Action(4, "F", 4))
    assert (up.sender, up.receiver) == (3, 2)


@pytest.mark.parametrize("name", plans())
def test_each_message_has_a_tag_of_its_own_and_one_consumer(name):
    order = made(name)
    sent = [route.tag for action in every(order) if (route := route_out(order, action)).travels]
    received = [route.tag for action in every(order) if (route := route_in(order, action)).travels]
    assert len(set(sent)) == len(sent)
    assert sorted(sent) == sorted(received)


@pytest.mark.parametrize("name", plans())
def test_every_receive_is_posted_once_by_the_time_it_is_needed_and_in_the_order_of_the_sends(name):
    order = made(name)
    for rank in range(order.stages):
        blocks = blocks_of(order.orders[rank])
        posts = expected_by(order, rank, blocks)
        posted: list[Action] = []
        for block, now in zip(blocks, posts, strict=True):
            posted += now
            assert all(action in posted for action in block if route_in(order, action).travels)
        assert len(set(posted)) == len(posted)
        for sender in range(order.stages):
            for forward in (True, False):
                channel = forward, sender, rank
                sends = [route_out(order, action) for action in order.orders[sender]]
                tags = [route.tag for route in sends if route.travels and route.channel == channel]
                arrivals = [route_in(order, action) for action in posted]
                assert [route.tag for route in arrivals if route.channel == channel] == tags


def test_an_order_that_takes_messages_out_of_turn_posts_those_before_too():
    swapped = schedule_from_orders(parse_orders("0F0,0F1,0B0,0B1\n1F1,1F0,1B0,1B1"))
    posts = expected_by(swapped, 1, blocks_of(swapped.orders[1]))
    assert [[str(action) for action in now] for now in posts] == [["1F0", "1F1"], [], [], []]


def test_an_overlapped_pair_is_one_block():
    order = made("dualpipe-v")
    pairs = [block for rank in order.orders for block in blocks_of(rank) if len(block) == 2]
    assert pairs
    assert {(first.kind, second.kind) for first, second in pairs} == {("F", "B")}


@pytest.mark.parametrize("name", plans())
def test_whether_backward_is_split(name):
    assert made(name).splits_backward == (name in SPLIT)


@pytest.mark.parametrize("name", plans())
def test_the_planted_fault_names_a_message_that_is_sent(name):
    order = made(name)
    lost = [action for action in every(order) if route_out(order, action).tag == GRADIENT_OF_FIRST]
    assert [(action.stage, action.microbatch, action.kind in "BI") for action in lost] == [(1, 0, True)]


def test_an_address_names_the_other_rank_in_the_group():
    class Group:
        def __init__(self, size, own):
            self.size, self.rank = (lambda: size), (lambda: own)

    out = route_out(made("1f1b"), Action(1, "F", 0))
    four, two = Group(4, 1), Group(2, 0)
    assert out.over(four).address == {"group": four, "group_dst": 2, "tag": out.tag}
    assert out.over(two).address == {"group": two, "group_dst": 1, "tag": out.tag}
    into = route_in(made("1f1b"), Action(2, "F", 0))
    assert into.over(four).address["group_src"] == 1
