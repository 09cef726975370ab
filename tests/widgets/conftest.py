import pytest

from widgets import pool


@pytest.fixture(scope="session", autouse=True)
def close_the_shared_pool():
    """Leave no ranks behind."""
    yield
    for ranks in list(pool._pools):
        pool.close(ranks)


@pytest.fixture(autouse=True)
def runs_in_a_temporary_folder(tmp_path, monkeypatch):
    """Run directories of tests are nobody's history."""
    monkeypatch.setenv("PLAYBOOK_RUNS", str(tmp_path))
