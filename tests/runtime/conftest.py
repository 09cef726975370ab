"""Fixtures of the tests with real ranks."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from playbook.runtime.pool import Pool


@pytest.fixture(autouse=True, scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Run directories of the tests go to a folder of the tests."""
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PLAYBOOK_RUNS", str(folder))
        yield folder


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    """Two warm gloo ranks, shared by the tests of a file."""
    with Pool(ranks=2, backend="gloo") as ranks:
        yield ranks


@pytest.fixture(scope="module")
def four() -> Iterator[Pool]:
    """Four warm gloo ranks, shared by the tests of a file."""
    with Pool(ranks=4, backend="gloo") as ranks:
        yield ranks
