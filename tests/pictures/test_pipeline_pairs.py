import pytest

from playbook.pictures.pipeline_pairs import pair_costs
from playbook.program.schedule import schedule


def test_a_pair_costs_a_part_of_the_forward_and_the_backward_that_meet():
    # Rank 0 holds stages 0 and 3, rank 1 stages 1 and 2; a forward of one meets a backward of the other.
    costs = pair_costs(schedule("dualpipe-v", 2, 8), [1, 1, 1, 2], [2, 2, 2, 4], 0.9)
    assert costs == pytest.approx([0.9 * (1 + 4), 0.9 * 3, 0.9 * 3, 0.9 * (2 + 2)])


def test_no_pair_is_shorter_than_the_longer_of_its_two():
    costs = pair_costs(schedule("dualpipe-v", 2, 8), [1, 1, 1, 2], [2, 2, 2, 4], 0.7)
    assert costs == pytest.approx([4, 0.7 * 3, 0.7 * 3, 0.7 * 4])


def test_the_copies_of_dualpipe_cost_what_their_stage_does():
    costs = pair_costs(schedule("dualpipe", 2, 8), [1, 2], [2, 4], 1)
    # Slots 0 and 3 lie on rank 0: stage 0 down, stage 1 up; 1 and 2 on rank 1: stage 1 down, stage 0 up.
    assert costs == [1 + 4, 2 + 2, 1 + 4, 2 + 2]
