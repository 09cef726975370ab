import pytest

from playbook.collectives import Transfer
from playbook.collectives.steps import run_step

ONE, TWO = frozenset((0,)), frozenset((1,))


def test_a_reduction_joins_what_sender_and_receiver_hold():
    assert run_step(((ONE,), (TWO,)), (Transfer(0, 1, 0, True),)) == ((ONE,), (ONE | TWO,))


def test_a_copy_overwrites_what_the_receiver_holds():
    assert run_step(((ONE,), (TWO,)), (Transfer(0, 1, 0, False),)) == ((ONE,), (ONE,))


def test_transfers_of_a_step_read_what_was_held_before_it():
    swap = (Transfer(0, 1, 0, False), Transfer(1, 0, 0, False))
    assert run_step(((ONE,), (TWO,)), swap) == ((TWO,), (ONE,))


def test_adding_a_rank_twice_is_caught():
    with pytest.raises(AssertionError, match="would count twice"):
        run_step(((ONE,), (ONE | TWO,)), (Transfer(0, 1, 0, True),))


def test_sending_what_is_not_held_is_caught():
    with pytest.raises(AssertionError, match="rank 0 sends chunk 0, which it does not hold"):
        run_step(((None,), (ONE,)), (Transfer(0, 1, 0, False),))
