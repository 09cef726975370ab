import numpy as np

from playbook.program.closed_form import undominated


def test_a_row_with_less_of_everything_is_left_out():
    one = np.array([[1.0, 5.0], [2.0, 5.0], [3.0, 0.0], [2.0, 5.0]])
    slope = np.zeros((4, 2))
    assert undominated(one, slope).tolist() == [1, 2]


def test_a_row_that_grows_faster_with_the_layers_stays():
    one = np.array([[1.0], [2.0]])
    slope = np.array([[1.0], [0.0]])
    assert undominated(one, slope).tolist() == [0, 1]
