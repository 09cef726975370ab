from fractions import Fraction

import numpy as np
import pytest

from playbook.program.polynomial import Polynomial, constant, scaled, symbol

b, s, h, N = (symbol(name) for name in "bshN")


def test_sums_and_products_collect_like_terms():
    assert (h + 2) * (h + 3) == h * h + 5 * h + 6
    assert h - h == 0


def test_a_symbol_below_the_line_divides():
    assert (12 * h).over("N").at({"h": 8, "N": 4}) == 24


def test_division_by_a_number_is_exact():
    assert (5 * h).divided(2).at({"h": 4}) == 10
    assert h.divided(2).coefficients == {(("h", 1),): Fraction(1, 2)}


def test_text_writes_powers_and_quotients_in_the_fields_order():
    assert str(5 * h * s * s * b + 34 * b * s * h + (3 * h).over("N")) == "5·b·s²·h + 34·b·s·h + 3·h/N"
    assert str(constant(0)) == "0"
    assert str(h + 7) == "h + 7"


def test_values_may_be_arrays_of_layouts():
    values = (16 * h).over("N").at({"h": 4, "N": np.array([1, 2, 4])})
    assert values.tolist() == [64, 32, 16]


def test_ratio_finds_the_multiple_of_a_base():
    base = 3 * h + 2 * s
    assert (base * 4).ratio(base) == 4
    assert (base + 1).ratio(base) is None


def test_scaled_keeps_numbers_whole():
    assert scaled(4, 5, 2) == 10
    assert scaled(2 * h, 5, 2) == 5 * h
    with pytest.raises(ValueError, match="no whole number"):
        scaled(3, 1, 2)


def test_polynomials_that_are_equal_have_one_hash():
    assert len({h + s, s + h, Polynomial({})}) == 2
