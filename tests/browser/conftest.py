"""A real JupyterLab on loopback, and a page of Chromium watched for stray requests and errors."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
ROOT = Path(__file__).resolve().parents[2]
LOOPBACK = {"127.0.0.1", "localhost", "::1", ""}


@dataclass(frozen=True, slots=True)
class Lab:
    """A running JupyterLab: its address and the server's process."""

    url: str
    pid: int


@dataclass
class Watch:
    """What a page asked for and complained about."""

    hosts: set[str] = field(default_factory=set)
    errors: list[str] = field(default_factory=list)

    def attach(self, page) -> None:
        """Listen to every request, console message and uncaught error of `page`."""
        page.on("request", lambda request: self.hosts.add(urlsplit(request.url).hostname or ""))
        page.on(
            "console", lambda message: self.errors.append(message.text) if message.type == "error" else None
        )
        page.on("pageerror", lambda error: self.errors.append(str(error)))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until_answers(url: str, server: subprocess.Popen, log: Path, deadline_s: float) -> None:
    end = time.monotonic() + deadline_s
    while time.monotonic() < end:
        assert server.poll() is None, f"JupyterLab ended with {server.returncode}: {log.read_text()[-2000:]}"
        try:
            urllib.request.urlopen(url, timeout=2).close()
        except OSError:
            time.sleep(0.2)
        else:
            return
    pytest.fail(f"JupyterLab did not answer within {deadline_s} s")


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A JupyterLab that `playbook lab` started, on a copy of the notebooks: it saves by itself."""
    port, home = free_port(), tmp_path_factory.mktemp("jupyter")
    environment = os.environ | {
        "JUPYTER_CONFIG_DIR": str(home / "config"),
        "JUPYTER_DATA_DIR": str(home / "data"),
        "JUPYTERLAB_SETTINGS_DIR": str(home / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces"),
        "PLAYBOOK_RUNS": str(home / "runs"),
    }
    command = [sys.executable, "-m", "playbook", "lab", "--no-browser", f"--port={port}"]
    options = [
        "--IdentityProvider.token=",
        "--ServerApp.allow_root=True",
        "--LabApp.expose_app_in_browser=True",
        f"--ServerApp.root_dir={home / 'notebooks'}",
    ]
    shutil.copytree(ROOT / "notebooks", home / "notebooks", ignore=shutil.ignore_patterns(".*"))
    with (home / "log").open("w") as log:
        server = subprocess.Popen(
            [*command, *options], cwd=ROOT, env=environment, stdout=log, stderr=log, start_new_session=True
        )
        try:
            wait_until_answers(f"http://127.0.0.1:{port}/api", server, home / "log", 180)
            yield Lab(url=f"http://127.0.0.1:{port}", pid=server.pid)
        finally:
            stop(server)


def stop(server: subprocess.Popen) -> None:
    """End JupyterLab and what it started, by the group that it leads."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if server.poll() is None:
            os.killpg(server.pid, number)
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            continue
        return


@pytest.fixture
def pictures() -> Path:
    """Where screenshots go: the folder that the environment names, or the cache of the tests."""
    folder = Path(os.environ.get("PLAYBOOK_SCREENSHOTS", ROOT / ".pytest_cache" / "screenshots"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator:
    """One Chromium a module: while Playwright is open its event loop runs, and other tests want their own."""
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=60_000)  # two busy cores; what is asserted is the outcome

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield started
        started.close()


@pytest.fixture(scope="module")
def watch() -> Watch:
    """Requests and errors of this module's page."""
    return Watch()


@pytest.fixture(scope="module")
def page(browser, watch: Watch) -> Iterator:
    """A fresh page, 1500 px wide."""
    context = browser.new_context(viewport={"width": 1500, "height": 1400}, device_scale_factor=1)
    fresh = context.new_page()
    fresh.set_default_timeout(120_000)
    watch.attach(fresh)
    yield fresh
    context.close()


@pytest.fixture(autouse=True)
def quiet(watch: Watch) -> Iterator[None]:
    """After each test no request may have left loopback, and no error may stand in the console."""
    yield
    assert watch.hosts <= LOOPBACK, f"requests left loopback: {watch.hosts - LOOPBACK}"
    assert not watch.errors, watch.errors
