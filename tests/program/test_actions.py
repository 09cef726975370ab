import pytest

from playbook.program.actions import needs_of, read_actions
from playbook.program.simulate import simulate
from playbook.schedules import Action


def orders(text):
    return [[Action.parse(cell) for cell in row.split()] for row in text.split("/")]


def needed(made, placement, depth):
    actions = read_actions(made, placement)
    return sorted(
        (actions.name(waiter), actions.name(awaited))
        for waiter, awaited in zip(*needs_of(actions, depth), strict=True)
    )


def test_a_forward_needs_the_stage_before_and_a_backward_the_stage_after():
    found = needed(orders("0F0 0I0 0W0 / 1F0 1B0"), [0, 1], 2)
    assert found == [("0I0", "1B0"), ("1F0", "0F0")]


def test_what_stands_earlier_on_the_same_rank_is_there_anyway():
    assert needed(orders("0F0 1F0 1B0 0B0"), [0, 0], 2) == []


def test_the_first_stage_of_a_chain_needs_no_stage_before():
    assert needed(orders("0F0 3F1 / 2F1 1F0"), [0, 1, 1, 0], 2) == [("1F0", "0F0"), ("3F1", "2F1")]


def test_blocks_count_a_pair_once():
    made = [[Action(0, "F", 0), Action(0, "F", 1), Action(0, "B", 0, True), Action(0, "B", 1)]]
    assert read_actions(made, [0]).block.tolist() == [0, 1, 1, 2]


def test_a_pair_whose_backward_needs_its_own_forward_waits_for_itself():
    made = [[Action(0, "F", 0), Action(0, "B", 0, True)]]
    with pytest.raises(
        ValueError, match=r"rank 0 stops at \(0F0;0B0\), which waits for \(0F0;0B0\) on rank 0"
    ):
        simulate(made, [0])


def test_pairs_are_named_in_a_cycle():
    made = [
        [Action(0, "F", 0), Action(0, "F", 1), Action(0, "B", 0, True), Action(0, "B", 1)],
        [Action(1, "F", 1), Action(1, "B", 1), Action(1, "F", 0), Action(1, "B", 0)],
    ]
    with pytest.raises(
        ValueError, match=r"rank 0 stops at \(0F1;0B0\), which waits for 1B0 on rank 1; rank 1 stops at 1F1"
    ):
        simulate(made, [0, 1])


@pytest.mark.parametrize(
    "order",
    [
        [Action(0, "F", 0, True), Action(0, "B", 0)],
        [Action(0, "F", 0), Action(0, "F", 1, True)],
        [Action(0, "F", 0), Action(0, "I", 0, True), Action(0, "W", 0)],
    ],
)
def test_a_pair_is_a_forward_and_then_a_backward(order):
    with pytest.raises(ValueError, match="cannot overlap the one before it; a pair is a forward"):
        read_actions([order], [0])
