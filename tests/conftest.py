"""What all tests share: one hypothesis profile and the system's browser."""

import os
import shutil

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "bench", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("bench")


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
