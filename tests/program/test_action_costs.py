import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from playbook.program.simulate import simulate
from playbook.schedules import Action
from playbook.spec import Link
from tests.program.plain_simulator import random_orders


def orders(text):
    return [[Action.parse(cell) for cell in row.split()] for row in text.split("/")]


PAIRED = [[Action(0, "F", 0), Action(0, "F", 1), Action(0, "B", 0, True), Action(0, "B", 1)]]
THERE_AND_BACK = orders("0F0 0B0 / 1F0 1B0 / 2F0 2B0")


def test_an_overlapped_pair_costs_both_actions_unless_its_own_cost_is_given():
    assert simulate(PAIRED, [0]).makespan == 1 + 3 + 2
    timed = simulate(PAIRED, [0], overlap=2)
    assert timed.duration.tolist() == [1, 2, 2, 2]
    assert timed.start.tolist() == [0, 1, 1, 3]
    assert (timed.makespan, timed.work, timed.idle) == (5, (5,), 0)


def test_the_cost_of_a_pair_is_that_of_its_forwards_stage():
    made = [
        [Action(0, "F", 0), Action(1, "F", 0), Action(1, "B", 0), Action(0, "F", 1), Action(0, "B", 0, True)]
    ]
    assert simulate(made, [0, 0], overlap=[7, 9]).duration.tolist() == [1, 1, 2, 7, 7]


def test_recomputation_is_added_to_a_fused_backward_and_shown_apart():
    timed = simulate(orders("0F0 0B0"), [0], recompute=1.5)
    assert timed.duration.tolist() == [1, 3.5]
    assert timed.recomputed.tolist() == [0, 1.5]


def test_recomputation_is_added_to_the_backward_for_inputs_not_to_that_for_weights():
    assert simulate(orders("0F0 0I0 0W0"), [0], recompute=2).duration.tolist() == [1, 3, 1]


def test_recomputation_is_added_to_a_pair_too():
    timed = simulate(PAIRED, [0], overlap=2, recompute=[1])
    assert timed.duration.tolist() == [1, 3, 3, 3]
    assert timed.recomputed.tolist() == [0, 0, 1, 1]


def test_a_straggler_is_slower_in_all_that_it_does():
    timed = simulate(orders("0F0 0B0 / 1F0 1B0"), [0, 1], recompute=1, stragglers={1: 2})
    assert timed.duration.tolist() == [1, 3, 2, 6]
    assert timed.recomputed.tolist() == [0, 1, 0, 2]
    assert timed.makespan == 12


def test_borders_may_have_links_of_their_own():
    """0.5 + 50/100 and 1 + 50/50 over the two borders, there and back."""
    links = [Link(latency_s=0.5, bandwidth_bytes_per_s=100), Link(latency_s=1, bandwidth_bytes_per_s=50)]
    timed = simulate(THERE_AND_BACK, [0, 1, 2], backward=1, link=links, message_bytes=50)
    assert timed.makespan == 6 + 2 * (1 + 2)


def test_borders_may_have_messages_of_their_own():
    link = Link(latency_s=0, bandwidth_bytes_per_s=10)
    timed = simulate(THERE_AND_BACK, [0, 1, 2], backward=1, link=link, message_bytes=[10, 40])
    assert timed.makespan == 6 + 2 * (1 + 4)


TWO_WAYS = orders("0F0 3F1 3B1 0B0 / 2F1 1F0 1B0 2B1")
BIDIRECTIONAL = [0, 1, 1, 0]


def test_chains_do_not_wait_for_each_other():
    timed = simulate(TWO_WAYS, BIDIRECTIONAL, comm=1, chains=2)
    assert timed.start.tolist() == [0, 2, 3, 6, 0, 2, 3, 6]


def test_costs_of_one_chain_hold_for_every_chain():
    one = simulate(TWO_WAYS, BIDIRECTIONAL, forward=[1, 2], comm=[3], chains=2)
    both = simulate(TWO_WAYS, BIDIRECTIONAL, forward=[1, 2, 1, 2], comm=[3, 3], chains=2)
    assert one.start.tolist() == both.start.tolist()
    assert one.duration.tolist() == [1, 2, 2, 2, 1, 2, 2, 2]


def test_the_borders_of_two_chains_may_differ():
    """Micro-batch 0 travels 1 each way, micro-batch 1 travels 5; rank 1 has 1F0 and 1B0 done at 5."""
    timed = simulate(TWO_WAYS, BIDIRECTIONAL, comm=[1, 5], chains=2)
    assert timed.start.tolist() == [0, 6, 7, 9, 0, 2, 3, 14]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stragglers": {2: 3}}, "straggler 2: the pipeline has 2 ranks; use 0 to 1"),
        ({"stragglers": {0: 0}}, "straggler 0: factor 0 must be above 0"),
        ({"recompute": [1, 2, 3]}, "recompute has 3 values for 2 stages"),
        ({"overlap": 1.9, "pair": True}, "overlap=1.9: a forward of 1 and a backward of 2 .*use 2 or more"),
        ({"overlap": -2, "pair": True}, "overlap=-2: .* no less than the longer of them; use 2 or more"),
        ({"overlap": float("nan"), "pair": True}, "overlap=nan: .* use 2 or more"),
        ({"overlap": -2}, "overlap=-2: .* use 2 or more"),
        ({"forward": [1, "x"]}, r"forward=\[1, 'x'\] is no number; give one number, or 2 for 2 stages"),
        ({"comm": "far"}, "comm='far' is no number; give one number, or 1 for 1 borders"),
        ({"message_bytes": [1, 2]}, "message_bytes has 2 values for 1 borders"),
        ({"link": [Link(latency_s=1, bandwidth_bytes_per_s=1)] * 2}, "link has 2 values for 1 borders"),
    ],
)
def test_costs_that_do_not_fit_are_refused(options, message):
    made, placement = (PAIRED, [0]) if options.pop("pair", False) else (orders("0F0 / 1F0"), [0, 1])
    with pytest.raises(ValueError, match=message):
        simulate(made, placement, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stragglers": [1, 2]}, r"stragglers=\[1, 2\] is no mapping; use rank: factor, as in \{2: 1.5\}"),
        ({"stragglers": {"1": 2}}, "rank '1' is no whole number; use 0 to 1"),
        ({"stragglers": {1: "2"}}, "straggler 1: factor '2' is no number; 2 is twice as slow"),
        ({"link": "nvlink"}, "link='nvlink' is no Link"),
    ],
)
def test_what_is_no_cost_at_all_is_a_type_error(options, message):
    with pytest.raises(TypeError, match=message):
        simulate(orders("0F0 / 1F0"), [0, 1], **options)


def test_a_pair_is_no_shorter_than_its_longer_half_on_any_stage():
    """The pair is 0F1 and 0B0: forward 5 and backward 2, while stage 1 has a forward of 9 and no pair."""
    made = [
        [Action(0, "F", 0), Action(1, "F", 0), Action(1, "B", 0), Action(0, "F", 1), Action(0, "B", 0, True)]
    ]
    assert simulate(made, [0, 0], forward=[5, 9], overlap=5).duration.tolist() == [5, 9, 2, 5, 5]
    with pytest.raises(ValueError, match="overlap=4: a forward of 5 and a backward of 2 .* use 5 or more"):
        simulate(made, [0, 0], forward=[5, 9], overlap=4)
    with pytest.raises(ValueError, match=r"a backward of 6 .* use 6 or more \(11 is one after the other\)"):
        simulate(made, [0, 0], forward=[5, 9], backward=6, overlap=[5, 20])


COSTS = ("forward", "backward", "backward_input", "backward_weight", "overlap", "recompute", "comm")


@pytest.mark.parametrize(
    "way", [{}, {"receive": "deferred"}, {"blocking_send": True}, {"queue": True}], ids=str
)
@settings(max_examples=30, deadline=None)
@given(
    case=random_orders(),
    costs=st.tuples(*[st.integers(0, 9)] * 7),
    which=st.sampled_from(COSTS),
    more=st.integers(1, 5),
)
def test_a_higher_cost_never_ends_the_step_earlier_and_work_is_the_sum_of_the_costs(
    way, case, costs, which, more
):
    made, placement = case
    cost = dict(zip(COSTS, costs, strict=True))
    cost["overlap"] += max(cost["forward"], cost["backward"]) + more  # no pair is shorter than its halves
    timed = simulate(made, placement, **cost, **way)
    slower = simulate(made, placement, **{**cost, which: cost[which] + more}, **way)
    assert slower.makespan >= timed.makespan
    kinds = dict(zip("FBIW", costs, strict=False))
    for rank, order in enumerate(made):
        pairs = [action for action in order if action.beside]
        single = sum(kinds[action.kind] for action in order)
        again = cost["recompute"] * sum(action.kind in "BI" for action in order)
        overlapped = len(pairs) * (cost["overlap"] - kinds["F"] - kinds["B"])
        assert timed.work[rank] == single + again + overlapped
