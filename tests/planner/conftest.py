import pytest

from playbook.planner.placed import placements
from playbook.planner.setting import Setting


@pytest.fixture
def make_setting():
    """A setting of unit costs, changed where a test says so."""

    def make(**given):
        plain = {
            "stages": 2,
            "microbatches": 2,
            "chunks": 1,
            "forward": 1,
            "backward_input": 1,
            "backward_weight": 1,
            "backward": None,
            "comm": 0,
            "memory_cap": None,
            "split": True,
            "copies": 1,
        }
        return Setting.of(**{**plain, **given})

    return make


@pytest.fixture
def place(make_setting):
    """The placements of such a setting."""
    return lambda **given: placements(make_setting(**given))
