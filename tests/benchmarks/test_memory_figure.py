import pytest

from benchmarks.memory_figure import Source, figure, table

PAIRS = ((1.01e9, 1e9), (2e9, 2e9), (3e9, 4e9))
SOURCE = Source(name="twins", goal="worst ≤ 4 %", file="x.json", pairs=PAIRS)


def test_errors_are_relative_to_what_was_observed_and_sorted():
    assert SOURCE.errors == pytest.approx([0, 0.01, 0.25])


def test_a_row_has_median_ninetieth_percentile_and_worst():
    assert table([SOURCE]).splitlines()[-1] == (
        "| [twins](benchmarks/results/x.json) | 3 | 1.000% | 20.200% | 25.000% | worst ≤ 4 % |"
    )


def test_the_picture_has_a_point_for_every_pair_and_a_line_of_equality():
    drawn = figure([SOURCE])
    assert drawn.count("<circle") == 3 + 2
    assert drawn.count("<polyline") == 1
    assert "predicted = observed" in drawn
