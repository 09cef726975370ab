import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from playbook.schedules import KINDS, Action
from playbook.schedules.packed import B, F, I, W, actions_of, in_turn, pack, pack_order, split_in_turn, unpack

ACTIONS = st.builds(Action, st.integers(0, 4000), st.sampled_from(KINDS), st.integers(0, 100_000))


@given(order=st.lists(ACTIONS, max_size=20))
def test_packed_actions_unpack_to_themselves(order):
    assert list(actions_of(pack_order(order))) == order


def test_packing_takes_arrays_of_stages_and_micro_batches():
    packed = pack(np.array([0, 2]), B, np.array([5, 6]))
    assert [str(action) for action in actions_of(packed)] == ["0B5", "2B6"]
    stage, kind, microbatch = unpack(packed)
    assert (stage.tolist(), kind.tolist(), microbatch.tolist()) == ([0, 2], [1, 1], [5, 6])


def test_forwards_and_backwards_alternate_after_the_lead():
    forwards, backwards = pack(0, F, np.arange(4)), pack(0, B, np.arange(4))
    order = [str(action) for action in actions_of(in_turn(forwards, backwards, lead=2))]
    assert order == ["0F0", "0F1", "0B0", "0F2", "0B1", "0F3", "0B2", "0B3"]


def test_weights_start_their_lag_late_and_the_rest_of_them_comes_last():
    every = np.arange(3)
    made = split_in_turn(pack(0, F, every), pack(0, I, every), pack(0, W, every), lead=1, lag=2)
    order = [str(action) for action in actions_of(made)]
    assert order == ["0F0", "0I0", "0F1", "0I1", "0F2", "0I2", "0W0", "0W1", "0W2"]


@pytest.mark.parametrize("action", [(0, "X", 0), (-1, "F", 0), (0, "F", -1), (0, "F", 1 << 30)])
def test_what_is_no_action_is_refused(action):
    with pytest.raises(ValueError, match="no kind of action|is no action"):
        pack_order([action])
