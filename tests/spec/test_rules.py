import numpy as np
import pytest

from playbook.spec import rules


def test_whole_numbers_of_numpy_are_taken_as_ints():
    assert type(rules.whole("dp", np.int64(4))) is int


def test_a_degree_that_does_not_divide_lists_those_that_do():
    with pytest.raises(ValueError, match="tp=3 does not divide heads=8; tp in 1, 2, 4, 8 would work"):
        rules.divides("tp", 3, "heads", 8)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 0, -1.0])
def test_positive_numbers_are_finite_and_above_zero(value):
    with pytest.raises(ValueError, match="must be above 0 and finite"):
        rules.positive("rate", value)


def test_texts_and_flags_are_what_they_say():
    with pytest.raises(TypeError, match="name='' must be a text"):
        rules.text("name", "")
    with pytest.raises(TypeError, match="reshard='yes' must be True or False"):
        rules.flag("reshard", "yes")
