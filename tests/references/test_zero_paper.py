"""Rajbhandari et al., ZeRO, 2020, figure 1: a model of 7.5 B parameters, mixed precision, 64 ranks."""

from playbook.predict.zero import zero_states


def test_the_four_numbers_of_figure_1():
    found = [state.total_bytes / 1e9 for state in zero_states(7_500_000_000, "bf16-fp32master", 64)]
    assert found == [120.0, 31.40625, 16.640625, 1.875]
    # The paper prints 120, 31.4, 16.6 and 1.9 GB.
    assert [round(size, 1) for size in found] == [120.0, 31.4, 16.6, 1.9]
