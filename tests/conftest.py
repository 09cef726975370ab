"""What all tests share: one hypothesis profile, a command line, and the system's browser."""

import json
import os
import re
import shlex
import shutil
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from playbook.cli import run_command

settings.register_profile(
    "bench", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("bench")

ALONE = re.compile(r"\bmark\.(dist|browser)\b")
"""What marks tests that start processes of their own: of several workers one has all their files, in turn."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Deal out tests to xdist's workers file by file, those that start ranks or a browser to one of them."""
    from xdist.scheduler import LoadScopeScheduling

    @cache
    def scope(path: str) -> str:
        return "ranks" if ALONE.search((config.rootpath / path).read_text(encoding="utf-8")) else path

    class RanksInTurn(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return scope(nodeid.partition("::")[0])

    return RanksInTurn(config, log)


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
