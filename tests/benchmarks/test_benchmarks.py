import math

import pytest

from benchmarks.figure import Figure, as_markdown
from benchmarks.machine import describe_machine
from benchmarks.registry import benchmarks

STARTS = {"warm_job": pytest.mark.dist, "redraw_browser": pytest.mark.browser}


def case(name):
    return pytest.param(name, marks=STARTS.get(name, ()))


@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", [case(name) for name in benchmarks()])
def test_every_benchmark_runs_at_a_tiny_size_and_gives_finite_figures(name):
    figures = benchmarks()[name](tiny=True)
    assert figures
    for figure in figures:
        assert figure.seconds
        assert all(math.isfinite(value) and value > 0 for value in figure.seconds + figure.peer_seconds)


def test_the_ratio_is_of_medians_and_the_budget_is_on_the_median():
    figure = Figure(
        what="x", seconds=(1.0, 2.0, 9.0), budget_s=1.5, peer="y", peer_seconds=(20.0,), wanted_ratio=10
    )
    assert (figure.fastest, figure.median, figure.ratio, figure.met) == (1, 2, 10, False)


def test_the_table_names_peer_and_machine():
    figure = Figure(
        what="x", seconds=(0.002,), budget_s=0.02, peer="y", peer_seconds=(4.0,), wanted_ratio=100
    )
    text = as_markdown([figure], "two cores")
    assert "| x | ≤ 20 ms | 2 ms | 2 ms | y: 4 s | 2,000 × (≥ 100 ×) | yes |" in text
    assert text.endswith("two cores\n")


def test_the_machine_is_described_in_one_line():
    text = describe_machine()
    assert "\n" not in text
    assert "cores" in text
