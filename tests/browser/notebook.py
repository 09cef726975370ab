"""Steps that a reader takes in JupyterLab, as functions of a Playwright page."""

import re

from playwright.sync_api import Locator, Page, expect

KEYS = ".jp-Notebook"


def open_notebook(page: Page, lab: str, name: str) -> None:
    """Open `name` in a fresh workspace and wait until its kernel is idle."""
    page.goto(f"{lab}/lab/workspaces/auto-test/tree/{name}?reset")
    page.wait_for_selector(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Notebook .jp-Cell")
    wait_until_idle(page)


def wait_until_idle(page: Page, timeout_s: float = 90) -> None:
    """Wait until the kernel of the open notebook has nothing to do."""
    status = page.locator(".jp-Notebook-ExecutionIndicator:visible").first
    expect(status).to_have_attribute("data-status", "idle", timeout=timeout_s * 1000)


def run_all(page: Page, timeout_s: float = 120) -> None:
    """Run every cell from the menu, and wait until the last has ended."""
    page.locator(".jp-Notebook:visible .jp-Cell").first.click()
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name=re.compile("^Run All Cells")).click()
    page.wait_for_timeout(500)
    wait_until_idle(page, timeout_s)


def explorer(page: Page, name: str) -> Locator:
    """The first explorer of kind `name` (collective, memory, pipeline) in the open notebook."""
    found = page.locator(f'[data-pb="{name}"]').first
    found.scroll_into_view_if_needed()
    return found


def use_theme(page: Page, name: str) -> None:
    """Switch JupyterLab to the theme `name`, such as "JupyterLab Dark", while it runs."""
    page.get_by_role("menuitem", name="Settings", exact=True).click()
    page.get_by_role("menuitem", name="Theme", exact=True).hover()
    page.get_by_role("menuitemradio", name=name, exact=True).or_(page.get_by_role("menuitem", name=name, exact=True)).first.click()
    light = "false" if "Dark" in name else "true"
    page.wait_for_selector(f'body[data-jp-theme-light="{light}"]')
