"""What all tests share: one hypothesis profile, a command line, and the system's browser."""

import json
import os
import shlex
import shutil

import pytest
from hypothesis import HealthCheck, settings

from playbook.cli import run_command

settings.register_profile(
    "bench", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("bench")

ALONE = ("dist", "browser")
"""Marks of tests that start processes of their own: of two workers one has them all, in turn."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tell `--dist loadgroup` what goes together: all that start ranks or a browser, and else a file."""
    if config.pluginmanager.hasplugin("xdist"):
        for item in items:
            alone = any(item.get_closest_marker(name) for name in ALONE)
            item.add_marker(pytest.mark.xdist_group("ranks" if alone else item.location[0]))


@pytest.fixture(scope="session")
def chromium() -> str:
    """Path of the system's Chromium; missing, it is a failure in CI and a named skip elsewhere."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found:
        return found
    message = "no Chromium found: install the system's `chromium` package"
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)


@pytest.fixture
def command(capsys):
    """Run a command line; gives status, standard output and standard error."""

    def call(line):
        status = run_command(shlex.split(line))
        out, err = capsys.readouterr()
        return status, out, err

    return call


@pytest.fixture
def answer(command):
    """Run a command line with --json; gives the object that it prints."""

    def call(line, status=0):
        found, out, err = command(f"{line} --json")
        assert found == status, err
        assert len(out.strip().splitlines()) == 1
        return json.loads(out)

    return call
