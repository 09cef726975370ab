import pytest

from benchmarks.pipeline_growth import exponent


def test_the_exponent_is_the_slope_of_the_logarithms():
    assert exponent((1.0, 10.0, 100.0), (3.0, 300.0, 30_000.0)) == pytest.approx(2)
