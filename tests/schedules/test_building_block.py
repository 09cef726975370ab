import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from playbook.program.schedule import schedule
from playbook.program.simulate import simulate
from playbook.schedules.building_block import PERIOD, block, close_up, words
from playbook.schedules.letters import spell
from playbook.schedules.placement import v_shape

BLOCKS = {"v-min": ((1, 1, 1, 1), 3, 2), "v-half": ((2, 1, 2, 1), 2, 3)}


def laid_out(name, ranks):
    steps, divisor, wait = BLOCKS[name]
    turn = wait if ranks % divisor == 0 else 0
    return block(ranks, steps, (0, turn, 1 if name == "v-half" else 0))


def test_a_micro_batch_goes_down_and_up_twice():
    assert block(3, (1, 1, 1, 1), (0, 2, 0)) == [(0, 5, 8, 13), (1, 4, 9, 12), (2, 3, 10, 11)]


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize("ranks", range(1, 33))
def test_no_two_actions_of_a_rank_share_a_slot_when_the_block_repeats(name, ranks):
    for slots in laid_out(name, ranks):
        assert len({slot % PERIOD for slot in slots}) == 4


@pytest.mark.parametrize("name", BLOCKS)
@settings(max_examples=25, deadline=None)
@given(ranks=st.integers(1, 9), microbatches=st.integers(1, 40))
def test_repeating_the_middle_spells_what_closing_up_the_whole_does(name, ranks, microbatches):
    laid, room = laid_out(name, ranks), 2 * ((ranks + 2) // 2 if name == "v-half" else (ranks + 4) // 3)
    assert words(laid, microbatches, room) == close_up(laid, microbatches, room)


@pytest.mark.parametrize("ranks", [2, 3, 4, 7, 8])
def test_wider_steps_give_the_zero_bubble_v_in_its_memory(ranks):
    spelled = close_up(block(ranks, (4, 2, 4, 2)), 4 * ranks, 2 * ranks)
    orders = [
        spell(word, (rank, 2 * ranks - 1 - rank), (4 * ranks, 4 * ranks)) for rank, word in enumerate(spelled)
    ]
    timed, zbv = simulate(orders, v_shape(ranks)), schedule("zbv", ranks, 4 * ranks).simulate()
    assert (timed.makespan, timed.peak_live) == (zbv.makespan, zbv.peak_live)
