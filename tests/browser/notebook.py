"""Steps that a reader takes in JupyterLab, as functions of a Playwright page."""

import re
import time
from collections.abc import Callable

from playwright.sync_api import Locator, Page, expect

SAVE = "([path, content]) => jupyterapp.serviceManager.contents.save(path, {type: 'notebook', content})"


def open_explorer(page: Page, lab: str, view: str, source: str) -> Locator:
    """Write a notebook of one cell, run it, and return the explorer that it shows."""
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    cell = {"cell_type": "code", "execution_count": None, "id": "a", "metadata": {}, "outputs": []}
    content = {"cells": [{**cell, "source": source}], "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
    page.goto(f"{lab}/lab/workspaces/auto-{view}?reset")
    page.wait_for_function("() => window.jupyterapp && jupyterapp.serviceManager.isReady")
    page.evaluate(SAVE, [f"{view}_explorer.ipynb", content])
    open_notebook(page, lab, f"{view}_explorer.ipynb")
    run_all(page)
    found = page.locator(f'[data-pb="explorer"][data-view="{view}"]').first
    expect(part(found, "headline")).not_to_be_empty()
    return found


def open_notebook(page: Page, lab: str, name: str) -> None:
    """Open `name` in a fresh workspace and wait until its kernel is idle."""
    page.goto(f"{lab}/lab/workspaces/auto-test/tree/{name}?reset")
    page.wait_for_selector(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Notebook .jp-Cell")
    wait_until_idle(page)


def wait_until_idle(page: Page, timeout_s: float = 180) -> None:
    """Wait until the kernel of the open notebook is up and has nothing to do."""
    expect(page.locator("#jp-main-statusbar")).to_contain_text("| Idle", timeout=timeout_s * 1000)


def run_all(page: Page, timeout_s: float = 300) -> None:
    """Run every cell from the menu, and wait until each has a number and none a star."""
    page.locator(".jp-Notebook:visible .jp-Cell").first.click()
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name=re.compile("^Run All Cells")).click()
    prompts = page.locator(".jp-Notebook:visible .jp-CodeCell .jp-InputPrompt")

    def have_run() -> bool:  # read anew each time: JupyterLab puts cells on the page one after the other
        texts = prompts.all_text_contents()
        return bool(texts) and all(re.fullmatch(r"\[\d+\]:", text.strip()) for text in texts)

    wait_until(page, have_run, timeout_s)
    wait_until_idle(page)
    wait_until(page, have_run, timeout_s)


def explorer(page: Page, name: str, timeout_s: float = 120) -> Locator:
    """Scroll to the first explorer of kind `name`; JupyterLab takes cells out of sight off the page."""
    found = page.locator(f'[data-pb="explorer"][data-view="{name}"]').first
    scroller = page.locator(".jp-Notebook:visible .jp-WindowedPanel-outer").first
    end, pause_ms = time.monotonic() + timeout_s, 150
    while not found.count():
        assert time.monotonic() < end, f"no explorer {name!r} was drawn within {timeout_s} s"
        for top in range(0, scroller.evaluate("element => element.scrollHeight"), 400):
            scroller.evaluate("(element, top) => { element.scrollTop = top }", top)
            page.wait_for_timeout(pause_ms)
            if found.count():
                break
        pause_ms *= 2  # a busy machine draws later than this had scrolled by
    found.scroll_into_view_if_needed()
    return found


def use_theme(page: Page, name: str) -> None:
    """Switch JupyterLab to the theme `name`, such as "JupyterLab Dark", while it runs."""
    page.evaluate("theme => window.jupyterapp.commands.execute('apputils:change-theme', { theme })", name)
    light = "false" if "Dark" in name else "true"
    page.wait_for_selector(f'body[data-jp-theme-light="{light}"]', state="attached")


def part(explorer: Locator, name: str) -> Locator:
    """A named part of an explorer, such as `headline`, `run` or `control-ranks`."""
    return explorer.locator(f'[data-pb="{name}"]').first


def pixels(canvas: Locator) -> str:
    """What a canvas shows, as a data address, to be compared with itself later."""
    return canvas.evaluate("canvas => canvas.toDataURL()")


def wait_until(page: Page, is_so: Callable[[], bool], timeout_s: float = 30) -> None:
    """Wait until something is so that Playwright has no expectation for, such as what a canvas shows."""
    end = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < end, f"it did not come about within {timeout_s} s"
        page.wait_for_timeout(50)
