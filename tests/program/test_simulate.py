import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from playbook.program.schedule import schedule
from playbook.program.simulate import simulate
from playbook.schedules import Action
from playbook.schedules.placement import v_shape
from playbook.spec import Link


def orders(text):
    return [[Action.parse(cell) for cell in row.split()] for row in text.split("/")]


def test_two_stages_by_hand():
    timed = simulate(orders("0F0 0B0 / 1F0 1B0"), [0, 1], forward=2, backward=3, comm=1)
    assert timed.start.tolist() == [0, 9, 3, 5]
    assert timed.makespan == 12
    assert timed.work == (5, 5)


def test_a_fused_backward_costs_both_parts_unless_its_own_cost_is_given():
    order = orders("0F0 0B0")
    assert simulate(order, [0], backward_input=2, backward_weight=3).makespan == 6
    assert simulate(order, [0], backward_input=2, backward_weight=3, backward=1).makespan == 2


def test_a_split_backward_frees_the_stage_before_early():
    fused = simulate(orders("0F0 0B0 / 1F0 1B0"), [0, 1])
    split = simulate(orders("0F0 0I0 0W0 / 1F0 1I0 1W0"), [0, 1])
    assert (fused.makespan, split.makespan) == (6, 5)


def test_a_chunk_lives_until_its_weight_gradient_is_done():
    timed = simulate(orders("0F0 0I0 0F1 0I1 0W0 0W1"), [0])
    assert timed.peak_live == (2,)
    times, counts = timed.live_curve(0)
    assert times.tolist() == [0, 2, 5, 6]
    assert counts.tolist() == [1, 2, 1, 0]


def test_stages_of_one_rank_pass_on_without_delay():
    timed = simulate(orders("0F0 3F0 3B0 0B0 / 1F0 2F0 2B0 1B0"), v_shape(2), comm=10)
    assert timed.makespan == 4 * 1 + 4 * 2 + 4 * 10 - 0


def test_each_stage_may_have_its_own_cost():
    timed = schedule("1f1b", 2, 4).simulate(forward=[1, 3], backward_input=[1, 2], backward_weight=0)
    assert timed.work == (8, 20)
    assert timed.makespan == 1 + 20 + 1
    assert timed.ideal == 14


def test_each_border_may_have_its_own_delay():
    timed = simulate(orders("0F0 0B0 / 1F0 1B0 / 2F0 2B0"), [0, 1, 2], backward=1, comm=[1, 4])
    assert timed.makespan == 6 + 2 * 5


def test_a_link_gives_latency_and_bytes_over_bandwidth():
    link = Link(latency_s=0.5, bandwidth_bytes_per_s=100)
    timed = simulate(orders("0F0 0B0 / 1F0 1B0"), [0, 1], backward=1, link=link, message_bytes=50)
    assert timed.makespan == 4 + 2 * 1.0


def test_a_blocking_sender_waits_for_its_message_to_arrive():
    order = orders("0F0 0F1 0B0 0B1 / 1F0 1F1 1B0 1B1")
    free = simulate(order, [0, 1], comm=2)
    blocked = simulate(order, [0, 1], comm=2, blocking_send=True)
    assert free.start[1] == 1
    assert blocked.start[1] == 3
    assert blocked.work == free.work


def test_span_idle_is_of_a_rank_between_its_own_first_start_and_last_end():
    timed = simulate(orders("0F0 0F1 / 1F0 1F1"), [0, 1])
    assert timed.idle == 1
    assert timed.span_idle == 0


def test_the_table_is_a_timeline_with_action_ids():
    table = schedule("1f1b", 2, 2).simulate().table
    row = table[table["op"] == "m1/B/stage1"].iloc[0]
    assert (row["rank"], row["kind"], row["label"], row["microbatch"]) == (1, "backward", "1B1", 1)
    assert (row["start_s"], row["duration_s"], row["source"]) == (5, 2, "simulated")
    assert len(table) == 8
    assert table["op"].is_unique


def test_ranks_that_wait_for_each_other_are_named_with_their_actions():
    with pytest.raises(
        ValueError,
        match="deadlock: rank 0 stops at 0B0, which waits for 1B0 on rank 1; "
        "rank 1 stops at 1F1, which waits for 0F1 on rank 0",
    ):
        simulate(orders("0F0 0B0 0F1 0B1 / 1F1 1B1 1F0 1B0"), [0, 1])


def test_a_backward_before_its_own_forward_is_a_deadlock():
    with pytest.raises(ValueError, match="rank 0 stops at 0B0, which waits for 0F0 on rank 0"):
        simulate(orders("0B0 0F0"), [0])


@pytest.mark.parametrize(
    ("text", "placement", "options", "message"),
    [
        ("0F0 / 1F0 1F1", [0, 1], {}, "1F1 needs F of micro-batch 1 on stage 0, which no rank runs"),
        ("0F0 0B0 / 1F0", [0, 1], {}, "0B0 needs B or I of micro-batch 0 on stage 1"),
        ("0F0 0W0", [0], {}, "0W0 needs I of micro-batch 0 on stage 0"),
        ("0F0 1F0", [0], {}, "stage 1 runs, but the placement has 1 stages"),
        ("0F0 / 1F0", [0, 0], {}, "rank 1 runs stage 1, but the placement gives it to rank 0"),
        ("0F0 0F0 0B0", [0], {}, "0F0 runs twice"),
        ("0F0", [0], {"forward": [1, 2]}, "forward has 2 values for 1 stages; give one number, or 1"),
        ("0F0", [0], {"forward": -1}, "forward=-1; use finite numbers"),
        ("0F0 / 1F0", [0, 1, 0], {"chains": 2}, "3 stages are no 2 chains of equal length"),
        ("0F0 / 1F0", [0, 1], {"comm": [1, 2]}, "comm has 2 values for 1 borders"),
    ],
)
def test_input_that_does_not_fit_is_refused(text, placement, options, message):
    with pytest.raises(ValueError, match=message):
        simulate(orders(text), placement, **options)


def test_a_kind_that_is_not_known_is_refused():
    with pytest.raises(ValueError, match="'X' is no kind of action; use one of F, B, I, W"):
        simulate([[(0, "X", 0)]], [0])


def test_a_rank_without_actions_is_refused():
    with pytest.raises(ValueError, match="rank 1 has no action"):
        simulate([[Action(0, "F", 0)], []], [0])
    with pytest.raises(ValueError, match="the order has no rank"):
        simulate([], [])


def test_comm_and_a_link_together_are_refused():
    link = Link(latency_s=1, bandwidth_bytes_per_s=1)
    with pytest.raises(ValueError, match="comm=1 and a link are both given"):
        simulate(orders("0F0 / 1F0"), [0, 1], comm=1, link=link)


def test_a_rank_outside_the_pipeline_has_no_curve():
    with pytest.raises(ValueError, match="rank 2 of 2; use 0 to 1"):
        schedule("1f1b", 2, 2).simulate().live_curve(2)


@settings(max_examples=40, deadline=None)
@given(p=st.integers(1, 6), m=st.integers(1, 12), comm=st.floats(0, 5), more=st.floats(0, 5))
def test_a_longer_delay_never_ends_a_step_earlier(p, m, comm, more):
    made = schedule("1f1b", p, m)
    assert made.simulate(comm=comm + more).makespan >= made.simulate(comm=comm).makespan - 1e-9
    assert made.simulate(comm=comm, blocking_send=True).makespan >= made.simulate(comm=comm).makespan - 1e-9
