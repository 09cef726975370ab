"""Small models for the spine's tests, with sizes that are easy to count by hand."""

import pytest

from tests.shapes import SMALL, scenario_of


@pytest.fixture
def small():
    """A Llama kind: 4 layers of 64, 4 query and 2 key-value heads of 16, feed-forward 96, vocabulary 128."""
    return SMALL


@pytest.fixture
def scenario():
    """Make a scenario of the small model from fields of Layout and Workload."""
    return scenario_of
