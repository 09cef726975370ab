"""A model whose sizes are easy to count by hand, and scenarios of it."""

from dataclasses import replace

import pytest

from playbook.runtime.pool import Pool
from tests.shapes import SMALL, TINY, scenario_of

LAYER = 64 * 64 + 2 * 64 * 32 + 64 * 64 + 3 * 64 * 96 + 2 * 64
"""Elements of one layer: q, k and v, o, feed-forward, two norms = 30 848."""

ROOT = 2 * 128 * 64 + 64
"""Elements of the ends: token table, head, last norm = 16 448."""

PSI = 4 * LAYER + ROOT


@pytest.fixture
def small():
    return SMALL


@pytest.fixture
def scenario():
    """Make a scenario of the small model from fields of Layout and Workload."""
    return scenario_of


@pytest.fixture
def tiny():
    """Two layers for real ranks; every size divides by 4."""
    return TINY


@pytest.fixture
def odd(tiny):
    """The same with rows that no even number of ranks divides."""
    return replace(tiny, name="odd", hidden=21, ffn=43, vocabulary=131)


@pytest.fixture(scope="module", autouse=True)
def runs(tmp_path_factory):
    """Run directories of the tests go to a folder of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PLAYBOOK_RUNS", str(tmp_path_factory.mktemp("runs")))
        yield


@pytest.fixture(scope="session")
def two():
    """Two warm gloo ranks."""
    with Pool(ranks=2, backend="gloo") as pool:
        yield pool


@pytest.fixture(scope="session")
def four():
    """Four warm gloo ranks."""
    with Pool(ranks=4, backend="gloo") as pool:
        yield pool
