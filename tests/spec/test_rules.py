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


@pytest.mark.parametrize(
    ("value", "least", "told"),
    [("2048", 1, 2048), (4096.0, 1, 4096), ("4096.0", 1, 4096), (True, 1, 1), (2.5, 1, 1), ("-3", 0, 1)],
)
def test_a_text_or_a_float_that_means_a_whole_number_is_suggested(value, least, told):
    with pytest.raises(TypeError, match=rf"must be a whole number; use size={told}$"):
        rules.whole("size", value, least)


def test_a_files_name_is_no_part_of_the_suggestion():
    with pytest.raises(TypeError, match=r"^toy: size='8' must be a whole number; use size=8$"):
        rules.whole("toy: size", "8")


def test_a_misspelt_name_is_answered_with_the_closest_ones():
    with pytest.raises(ValueError, match=r"valid are none, full; did you mean full\?$"):
        rules.choice("recompute", "ful", ("none", "full"))
    with pytest.raises(ValueError, match=r"valid are none, full$"):
        rules.choice("recompute", "red", ("none", "full"))
    assert rules.near("bf15", ("bf16", "bf18", "fp8")) == "; did you mean bf18 or bf16?"
    with pytest.raises(ValueError, match=r"no field 'sequense'; its fields are sequence; did you mean seq"):
        rules.known_keys("Workload", {"sequense": 1}, ("sequence",))
