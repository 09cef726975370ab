"""PipelineExplorer as a reader uses it: grid, whole step, hover, focus, scatter, files, a run, a model."""

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import Lab
from tests.browser.notebook import open_explorer, part, use_theme, wait_until

pytestmark = [pytest.mark.browser, pytest.mark.timeout(900)]
CELL = """from widgets import PipelineExplorer
PipelineExplorer(shown="forward", stages=4, microbatches=4)"""
RUN_MS = 120_000


@pytest.fixture(scope="module")
def shown(page: Page, lab: Lab) -> Locator:
    """One explorer in a notebook of its own; the tests below use it one after another."""
    return open_explorer(page, lab.url, "pipeline", CELL)


def show(explorer: Locator, words: str) -> None:
    part(explorer, "control-shown").get_by_text(words).click()


def choose(explorer: Locator, *titles: str) -> None:
    """Set the schedules shown to exactly these, by their boxes in the drop-down."""
    drop = part(explorer, "control-schedules")
    part(explorer, "picked-schedules").click()
    for title in titles:
        drop.get_by_label(title, exact=True).check()
    for box in drop.get_by_role("checkbox").all():
        name = box.locator("xpath=..").inner_text()
        if name not in titles and box.is_checked():
            box.uncheck()
    part(explorer, "picked-schedules").click()


def some_pixels(canvas: Locator) -> bool:
    return canvas.evaluate(
        "c => c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some(v => v > 0)"
    )


def test_the_first_picture_is_four_by_four_over_seven_slots(shown: Locator, pictures: Path) -> None:
    expect(part(shown, "headline")).to_contain_text("3/7")
    expect(shown.locator("canvas")).to_have_count(1)
    expect(shown.locator("[data-axis] text").filter(has_text=re.compile(r"^7$"))).to_have_count(1)
    expect(part(shown, "run")).to_be_disabled()
    shown.screenshot(path=pictures / "pipeline-forward.png")


def test_the_whole_step_of_chosen_schedules_is_stacked_on_one_clock(shown: Locator, pictures: Path) -> None:
    show(shown, "whole step")
    choose(shown, "1F1B", "ZB-V")
    expect(shown.locator("canvas")).to_have_count(2)
    expect(part(shown, "headline")).to_contain_text("Same work, two orders")
    expect(shown).to_contain_text("Rank 0 holds stages 0 and 7 and the loss")
    expect(shown.locator(".formula").first).to_contain_text("(p − 1)(F + B) = 18")
    shown.screenshot(path=pictures / "pipeline-two.png")


def test_hovering_an_action_names_its_wait_at_the_fixed_place(shown: Locator, page: Page) -> None:
    canvas = shown.locator("canvas").first
    box = canvas.bounding_box()
    assert box
    # Rank 0 of 1F1B at p = m = 4 ends at 42 half units; B0 runs from 20 to 24, after its wait.
    x = 46 + (22 / (42 * 1.012)) * (box["width"] - 42 - 46)
    canvas.hover(position={"x": x, "y": 18})
    line = shown.locator(".hover-line").first
    expect(line).to_contain_text("B0, backward on rank 0")
    expect(line).to_contain_text("for B0 of rank 1")
    page.mouse.move(2, 2)
    expect(line).to_contain_text("rank 0 holds")


def test_keys_walk_through_actions_and_show_the_ranks_memory_large(shown: Locator, page: Page) -> None:
    part(shown, "picture").focus()
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    expect(part(shown, "live")).to_contain_text("on rank 0")
    expect(shown.locator("[data-held] svg[role=img]")).to_be_visible()
    expect(shown.locator("[data-held] svg[role=img]")).to_contain_text("rank 0 holds")
    page.keyboard.press("ArrowDown")
    expect(shown.locator("[data-held] svg[role=img]")).to_contain_text("rank 1 holds")


def test_play_runs_a_line_over_the_clock_and_stops(shown: Locator, page: Page) -> None:
    part(shown, "play").click()
    expect(part(shown, "play")).to_contain_text("Stop")
    expect(shown.locator(".hover-line").first).to_contain_text(re.compile("at .*rank 0"))
    part(shown, "play").click()
    expect(part(shown, "play")).to_contain_text("Play")


def test_more_than_four_schedules_are_refused_in_words(shown: Locator) -> None:
    choose(shown, "1F1B", "ZB-V", "GPipe", "ZB-H1", "V-Half")
    expect(shown.locator(".refusal:not([hidden])")).to_contain_text("one clock holds four")
    choose(shown, "1F1B", "ZB-V")
    expect(shown.locator(".refusal:not([hidden])")).to_have_count(0)


def test_enter_takes_a_text_and_shows_why_another_is_refused(shown: Locator) -> None:
    costs = shown.locator("[data-pb=control-costs]")
    stages = shown.locator("[data-pb=field-stages]")
    refusal = shown.locator(".control:has([data-pb=control-costs]) .refusal")
    before = costs.input_value()
    costs.fill("1 : 1")
    costs.press("Enter")
    expect(refusal).to_contain_text("such as 1:1:1")
    costs.fill(before)
    costs.press("Enter")
    expect(refusal).to_be_hidden()
    kept = stages.input_value()
    stages.fill("many")
    stages.press("Enter")
    expect(shown.locator(".control:has([data-pb=field-stages]) .refusal")).to_contain_text("not a number")
    stages.fill("")
    stages.press("Enter")
    expect(stages).to_have_value(kept)
    expect(shown.locator("[data-pb=error]")).to_be_hidden()


def test_files_are_offered_by_the_page_itself(shown: Locator, page: Page, tmp_path: Path) -> None:
    part(shown, "export").click()
    with page.expect_download() as loading:
        part(shown, "export-trace").click()
    loading.value.save_as(tmp_path / "trace.json")
    assert loading.value.suggested_filename == "pipeline-trace.json"
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    part(shown, "export").click()
    with page.expect_download() as loading:
        part(shown, "export-png").click()
    loading.value.save_as(tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_a_cap_is_asked_for_under_the_fold_and_marks_who_exceeds_it(shown: Locator, pictures: Path) -> None:
    part(shown, "more").click()
    field = part(shown, "field-cap")
    field.fill("3")
    field.press("Enter")
    expect(part(shown, "headline")).to_contain_text("in 3")
    expect(shown.locator(".facts .over").first).to_contain_text("✕")
    shown.screenshot(path=pictures / "pipeline-cap.png")
    field.fill("0")
    field.press("Enter")
    expect(shown.locator(".facts .over")).to_have_count(0)
    part(shown, "more").click()


def test_the_scatter_shows_all_and_a_click_chooses(shown: Locator, page: Page, pictures: Path) -> None:
    show(shown, "scatter")
    scatter = shown.locator("[data-scatter] svg")
    expect(scatter).to_contain_text("DualPipe-V")
    shown.screenshot(path=pictures / "pipeline-scatter.png")
    scatter.get_by_text("V-Min", exact=True).click()
    expect(part(shown, "picked-schedules")).to_contain_text("V-Min")
    show(shown, "whole step")
    expect(shown.locator("canvas")).to_have_count(3)
    choose(shown, "1F1B", "ZB-V")


def test_real_ranks_run_split_backwards_and_each_kind_has_its_error(shown: Locator, pictures: Path) -> None:
    field = part(shown, "field-stages")
    field.fill("2")
    field.press("Enter")
    expect(part(shown, "run")).to_contain_text("Run on 2 ranks")
    part(shown, "run").click()
    expect(part(shown, "cancel")).to_be_visible()
    expect(part(shown, "run")).to_be_enabled(timeout=RUN_MS)
    table = part(shown, "comparison")
    expect(table).not_to_contain_text("not run")
    expect(table).to_contain_text("ZB-V, backward for weights")
    expect(part(shown, "headline")).to_contain_text("On real ranks")
    shown.screenshot(path=pictures / "pipeline-ran.png")
    field.fill("4")
    field.press("Enter")


def test_a_model_brings_seconds_and_gigabytes(shown: Locator, pictures: Path) -> None:
    part(shown, "control-model").select_option("llama-3.1-8b")
    expect(shown.locator(".facts").first).to_contain_text("GB")
    expect(part(shown, "control-gpu")).to_be_visible()
    part(shown, "control-gpu").select_option("a100-40")
    expect(part(shown, "headline")).to_contain_text("fit")
    shown.screenshot(path=pictures / "pipeline-model.png")
    part(shown, "control-model").select_option("units")
    expect(part(shown, "control-costs")).to_be_visible()


def test_the_dark_theme_is_followed_by_canvas_and_curve(shown: Locator, page: Page, pictures: Path) -> None:
    use_theme(page, "JupyterLab Dark")
    expect(shown).to_have_attribute("data-theme", "dark")
    page.wait_for_timeout(800)
    wait_until(page, lambda: some_pixels(shown.locator("canvas").first))
    shown.screenshot(path=pictures / "pipeline-two-dark.png")
    use_theme(page, "JupyterLab Light")
