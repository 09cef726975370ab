"""From a slider's key to the new picture in the browser: processor time of the page's main thread.

A real JupyterLab on loopback and the system's Chromium; without either there is no row.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.figure import Figure

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
CELL = """from widgets import PipelineExplorer
PipelineExplorer(stages={stages}, microbatches={first}, chunks=2, schedules=["interleaved-1f1b"])"""
SLIDER = '[data-pb="control-microbatches"]'


def measure(tiny: bool = False) -> list[Figure]:
    """Measure the main thread's work of moving the micro-batches of a pipeline of about 10 000 blocks."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None or find_spec("playwright") is None:
        return []
    stages, first, keys = (2, 4, 2) if tiny else (8, 256, 12)
    with tempfile.TemporaryDirectory() as folder, jupyterlab(Path(folder), stages, first) as address:
        samples = list(press_keys(chromium, address, keys))
    what = f"slider to new picture, about {2 * 2 * stages * first:,} blocks, browser CPU"
    return [
        Figure(
            what=f"{what}: script, style, layout", seconds=tuple(one[0] for one in samples), budget_s=0.05
        ),
        Figure(
            what=f"{what}: every task of the main thread, painted in software, JupyterLab's own included",
            seconds=tuple(one[1] for one in samples),
        ),
    ]


@contextmanager
def jupyterlab(folder: Path, stages: int, first: int) -> Iterator[str]:
    """Address of a JupyterLab with one notebook of one explorer."""
    cell = {"cell_type": "code", "id": "a", "execution_count": None, "metadata": {}, "outputs": []}
    cell["source"] = CELL.format(stages=stages, first=first)
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    notebook = {"cells": [cell], "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
    (folder / "one.ipynb").write_text(json.dumps(notebook))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "playbook", "lab", "--no-browser", f"--port={port}"]
    options = ["--IdentityProvider.token=", "--ServerApp.allow_root=True", f"--ServerApp.root_dir={folder}"]
    places = {f"JUPYTER_{kind}_DIR": str(folder / ".jupyter" / kind.lower()) for kind in ("CONFIG", "DATA")}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "start_new_session": True}
    server = subprocess.Popen([*command, *options], env=os.environ | places, **quiet)
    try:
        wait_for(f"http://127.0.0.1:{port}/api")
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(30)


def wait_for(url: str) -> None:
    """Return as soon as the server answers."""
    for _ in range(300):
        try:
            urllib.request.urlopen(url, timeout=2).close()
        except OSError:
            time.sleep(0.2)
        else:
            return
    raise TimeoutError(f"no answer from {url} within a minute")


def press_keys(chromium: str, address: str, keys: int) -> Iterator[tuple[float, float]]:
    """Seconds of the page's main thread for each key on the slider: in our kinds of work, and in all."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        page = browser.new_page(viewport={"width": 1500, "height": 1200})
        page.set_default_timeout(120_000)
        page.goto(f"{address}/lab/tree/one.ipynb?reset")
        page.locator("#jp-main-statusbar").get_by_text("Idle").wait_for()
        page.locator(".jp-Cell").first.click()
        page.keyboard.press("Shift+Enter")
        page.locator(SLIDER).focus()
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable")
        page.wait_for_timeout(3000)
        for key in range(keys + 2):
            before = worked(session)
            page.keyboard.press("ArrowRight" if key % 2 else "ArrowLeft")
            page.wait_for_timeout(700)
            after = worked(session)
            if key >= 2:
                yield after[0] - before[0], after[1] - before[1]
        browser.close()


def worked(session: Any) -> tuple[float, float]:
    """Seconds that the page's main thread has worked so far: in script, style and layout; and in all."""
    metrics = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
    parts = ("ScriptDuration", "RecalcStyleDuration", "LayoutDuration")
    return sum(metrics[part] for part in parts), metrics["TaskDuration"]


if __name__ == "__main__":
    for figure in measure():
        print(figure.what, [round(1000 * one, 1) for one in figure.seconds], "ms")
