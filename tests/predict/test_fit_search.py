from hypothesis import given, settings
from hypothesis import strategies as st

from playbook.predict.fit_search import Memo, Tried, first_that_fits, last_that_fits

LIMIT = 1000


def memo(size):
    def evaluate(index):
        need = size(index)
        return Tried(value=index, peak_bytes=need, device_bytes=need, fits=need <= LIMIT)

    return Memo(evaluate, LIMIT)


@settings(max_examples=30, deadline=None)
@given(base=st.integers(0, 1000), slope=st.integers(1, 400), kink=st.integers(0, 60), more=st.integers(0, 50))
def test_the_last_that_fits_is_exact_on_lines_with_a_kink(base, slope, kink, more):
    asked = memo(lambda index: base + slope * index + more * max(0, index - kink) ** 2)
    found = last_that_fits(asked, None)
    plain = max(index for index in range(1001) if asked(index).fits)
    assert found == plain


def test_a_staircase_takes_few_evaluations():
    asked = memo(lambda index: 100 + index // 1000)
    assert last_that_fits(asked, None) == 900_999
    assert len(asked.tried) < 75  # three for each halving at most


def test_a_straight_line_takes_very_few():
    asked = memo(lambda index: 100 + index // 4)
    assert last_that_fits(asked, None) == 3603
    assert len(asked.tried) < 15


def test_nothing_fits_where_the_first_does_not():
    assert last_that_fits(memo(lambda _: 2000), None) is None
    assert first_that_fits(memo(lambda _: 2000), 50) is None


def test_the_start_may_be_anywhere():
    for start in (0, 1, 5, 49, 50, 51, 1000):
        assert last_that_fits(memo(lambda index: 20 * index), None, start) == 50
        assert last_that_fits(memo(lambda index: 20 * index), 30, start) == 29


def test_bounds_end_the_search():
    assert last_that_fits(memo(lambda _: 1), 7) == 6
    assert last_that_fits(memo(lambda index: 100 * index), 7) == 6
    assert last_that_fits(memo(lambda index: 400 * index), 7) == 2


def test_the_first_that_fits_is_the_smallest():
    asked = memo(lambda index: 50_000 // (index + 1))
    assert first_that_fits(asked, None) == 49
    assert [one.fits for one in asked.tried] == sorted(one.fits for one in asked.tried)


def test_more_of_what_does_not_help_is_given_up():
    asked = memo(lambda index: 5000 if index else 6000)
    assert first_that_fits(asked, None) is None
    assert len(asked.tried) < 5
