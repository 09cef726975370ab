"""The tour as a reader meets it: run all, move a slider, press Run, cancel a hung run, in both themes."""

import signal
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Lab
from tests.browser.notebook import explorer, open_notebook, part, pixels, run_all, use_theme, wait_until
from tests.runtime.processes import left_running

pytestmark = [pytest.mark.browser, pytest.mark.timeout(900)]
RUN_S = 180_000


@pytest.fixture(scope="module")
def tour(page: Page, lab: Lab) -> Page:
    """The tour, opened and run once; the tests below use it one after another."""
    open_notebook(page, lab.url, "00_start.ipynb")
    run_all(page)
    return page


def ranks_at_work(server_pid: int) -> list[psutil.Process]:
    """Processes below the JupyterLab under test whose work is a rank: the leaves of its forkservers."""
    found = []
    for one in psutil.Process(server_pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if not one.children() and "forkserver" in " ".join(one.cmdline()):
                found.append(one)
    return found


def test_run_all_draws_three_explorers_with_measured_marks(tour: Page, pictures: Path) -> None:
    assert tour.locator(".jp-OutputArea-output[data-mime-type='application/vnd.jupyter.stderr']").count() == 0
    for name in ("collective", "memory", "pipeline"):
        shown = explorer(tour, name)
        expect(part(shown, "headline")).not_to_be_empty()
        expect(part(shown, "comparison")).not_to_contain_text("not run")
        expect(shown).to_have_attribute("data-theme", "light")
        shown.screenshot(path=pictures / f"{name}-light.png")


def test_a_dark_theme_is_followed_live(tour: Page, pictures: Path) -> None:
    use_theme(tour, "JupyterLab Dark")
    for name in ("collective", "memory", "pipeline"):
        shown = explorer(tour, name)
        expect(shown).to_have_attribute("data-theme", "dark")
        tour.wait_for_timeout(300)
        shown.screenshot(path=pictures / f"{name}-dark.png")
    canvas = explorer(tour, "pipeline").locator("canvas").first
    some_ink = "c => c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some(v => v > 0)"
    wait_until(tour, lambda: canvas.evaluate(some_ink))  # else the timeline is blank after the switch


def test_a_slider_moved_by_keyboard_changes_the_picture_and_no_cell(tour: Page) -> None:
    shown = explorer(tour, "pipeline")
    cells, canvas = tour.locator(".jp-Notebook .jp-Cell").count(), shown.locator("canvas").first
    before, headline = pixels(canvas), part(shown, "headline").inner_text()
    slider = part(shown, "control-microbatches")
    slider.focus()
    for key in ("ArrowRight", "ArrowRight", "b", "a", "d", "d"):
        tour.keyboard.press(key)
    expect(part(shown, "field-microbatches")).not_to_have_value("8")
    expect(part(shown, "headline")).not_to_have_text(headline)
    wait_until(tour, lambda: pixels(canvas) != before)
    assert tour.locator(".jp-Notebook .jp-Cell").count() == cells


def test_another_zero_stage_is_drawn_when_its_segment_is_clicked(tour: Page) -> None:
    shown = explorer(tour, "memory")
    headline = part(shown, "headline").inner_text()
    stages = part(shown, "control-zero")
    stages.get_by_text("DDP").click()
    expect(part(shown, "step-title")).to_contain_text("DDP")
    expect(shown.locator(".refusal:not([hidden])")).to_have_count(0)
    stages.get_by_text("Z-3").click()
    expect(part(shown, "headline")).to_have_text(headline)


def test_nothing_of_jupyters_own_covers_the_pictures(tour: Page) -> None:
    expect(tour.locator(".Toastify__toast")).to_have_count(0)


def test_run_brings_measured_marks_and_a_hung_run_is_cancelled(tour: Page, lab: Lab) -> None:
    shown = explorer(tour, "pipeline")
    part(shown, "control-microbatches").focus()
    tour.keyboard.press("ArrowRight")
    expect(part(shown, "comparison")).to_contain_text("not run")
    part(shown, "run").click()
    expect(part(shown, "cancel")).to_be_focused()
    expect(part(shown, "run")).to_be_enabled(timeout=RUN_S)
    expect(part(shown, "comparison")).not_to_contain_text("not run")

    stopped = ranks_at_work(lab.pid)
    assert stopped, "no rank of the pool was found"
    stopped[0].send_signal(signal.SIGSTOP)  # before the run, which might be over before it was stopped
    part(shown, "run").click()
    expect(part(shown, "cancel")).to_be_visible()
    expect(part(shown, "phases")).to_be_visible()
    tour.wait_for_timeout(6000)
    expect(part(shown, "cancel")).to_be_visible()
    part(shown, "cancel").click()
    expect(part(shown, "run")).to_be_enabled(timeout=30_000)
    expect(shown).to_contain_text("cancelled")
    assert left_running(stopped[:1]) == []

    part(shown, "run").click()
    expect(part(shown, "cancel")).to_be_visible()
    expect(part(shown, "run")).to_be_enabled(timeout=RUN_S)
    expect(part(shown, "comparison")).not_to_contain_text("not run")


def test_a_refused_value_is_answered_in_words_and_the_picture_stays(tour: Page) -> None:
    shown = explorer(tour, "collective")
    field = part(shown, "field-ranks")
    field.fill("0")
    field.press("Enter")
    expect(shown.locator(".refusal:not([hidden])")).to_contain_text("ranks=0")
    expect(part(shown, "headline")).not_to_be_empty()
    field.fill("4")
    field.press("Enter")
    expect(shown.locator(".refusal:not([hidden])")).to_have_count(0)
