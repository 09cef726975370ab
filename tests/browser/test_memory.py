"""MemoryExplorer as a reader uses it: a twin, a pipeline, one layer through its passes, a pasted model."""

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import Lab
from tests.browser.notebook import open_explorer, part, use_theme

pytestmark = [pytest.mark.browser, pytest.mark.timeout(900)]
CELL = """from widgets import MemoryExplorer
explorer = MemoryExplorer("llama-3.1-70b", ranks=64, sequence=4096)
explorer"""
PASTE = """(area, text) => {
    area.focus();
    area.value = text;
    area.dispatchEvent(new Event('paste', { bubbles: true }));
}"""
LLAMA_2_7B = {
    "_name_or_path": "my-llama",
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "intermediate_size": 11008,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
}


@pytest.fixture(scope="module")
def shown(page: Page, lab: Lab) -> Locator:
    """One explorer in a notebook of its own; the tests below use it one after another."""
    return open_explorer(page, lab.url, "memory", CELL)


def enter(explorer: Locator, name: str, value: str) -> None:
    field = part(explorer, f"field-{name}")
    field.fill(value)
    field.press("Enter")


def fold(explorer: Locator, words: str) -> Locator:
    return explorer.locator("summary").filter(has_text=words)


def test_the_first_picture_has_no_pipeline_and_its_twin_says_what_it_is(
    shown: Locator, pictures: Path
) -> None:
    expect(part(shown, "headline")).to_contain_text("Only ZeRO-3 fits in an H100")
    expect(part(shown, "stages")).to_be_hidden()
    peak = part(shown, "comparison").locator("tr").filter(has_text=re.compile("^peak backward"))
    expect(peak.locator("td").nth(3)).to_contain_text("twin")
    expect(peak.locator("td").nth(3)).to_have_attribute("title", re.compile("recorded on an NVIDIA H200"))
    shown.screenshot(path=pictures / "memory-first-light.png")


def test_models_stand_under_their_families_and_a_typed_name_chooses_one(shown: Locator, page: Page) -> None:
    control = part(shown, "control-model")
    expect(control).to_have_attribute("aria-label", "Model")
    expect(control.locator('optgroup[label="Llama, Meta"] option')).to_have_count(9)
    control.focus()
    page.keyboard.type("Llama 3.1 8B")
    expect(shown.locator(".kick")).to_contain_text("llama-3.1-8b")
    control.select_option(label="Llama 3.1 70B")
    expect(shown.locator(".kick")).to_contain_text("llama-3.1-70b")


def test_a_real_step_takes_the_pictures_of_the_readme_in_both_themes(
    shown: Locator, page: Page, pictures: Path
) -> None:
    part(shown, "run").click()
    expect(part(shown, "real")).to_be_visible(timeout=180_000)
    expect(part(shown, "run")).to_be_enabled(timeout=180_000)
    expect(part(shown, "comparison")).not_to_contain_text("not run")
    page.mouse.move(0, 0)
    page.evaluate("document.activeElement.blur()")
    for theme in ("Dark", "Light"):
        use_theme(page, f"JupyterLab {theme}")
        expect(shown).to_have_attribute("data-theme", theme.lower())
        shown.screenshot(path=pictures / f"memory-readme-{theme.lower()}.png")


def test_pipeline_ranks_appear_and_the_worst_one_is_named(shown: Locator, pictures: Path) -> None:
    fold(shown, "More axes").click()
    enter(shown, "ranks", "8")
    enter(shown, "tp", "8")
    enter(shown, "pp", "4")
    enter(shown, "microbatches", "16")
    expect(part(shown, "stages-words")).to_contain_text("rank 0 is the worst")
    expect(part(shown, "stages-words")).to_contain_text("16 micro-batches")
    bars = shown.locator("[data-stages] text")
    expect(bars.filter(has_text=re.compile("^worst$"))).to_have_count(1)
    expect(bars.filter(has_text=re.compile("^rank [0-3]$"))).to_have_count(4)
    expect(part(shown, "step-title")).to_contain_text("pipeline rank 0")
    shown.screenshot(path=pictures / "memory-pipeline-light.png")


def test_a_schedule_and_the_layers_of_its_stages_are_chosen_beside_pipeline_ranks(
    shown: Locator, pictures: Path
) -> None:
    schedule, layers = part(shown, "control-schedule"), part(shown, "control-stage_layers")
    schedule.select_option(label="GPipe")
    expect(part(shown, "stages-words")).to_contain_text("GPipe, 16 micro-batches")
    expect(part(shown, "control-chunks")).to_have_count(0)
    layers.fill("22,20,20")
    layers.press("Enter")
    refused = shown.locator(".refusal:not([hidden])")
    expect(refused).to_contain_text("stage_layers has 3 numbers but pp=4")
    shown.screenshot(path=pictures / "memory-stages-refused-light.png")
    layers.fill("22,20,20,18")
    layers.press("Enter")
    expect(refused).to_have_count(0)
    expect(shown.locator("[data-stages] text").filter(has_text="18 layers, head")).to_have_count(1)
    layers.fill("")
    layers.press("Enter")
    schedule.select_option(label="1F1B")
    expect(part(shown, "stages-words")).to_contain_text("1F1B, 16 micro-batches")


def test_sequence_parallelism_is_a_choice_among_tensor_ranks(shown: Locator, pictures: Path) -> None:
    kick, choice = shown.locator(".kick"), part(shown, "control-sequence_parallel")
    expect(kick).to_contain_text("tp 8 with SP")
    expect(part(shown, "step-title")).to_contain_text("step with SP")
    choice.get_by_label("off").check(force=True)
    expect(kick).not_to_contain_text("with SP")
    shown.screenshot(path=pictures / "memory-without-sp-light.png")
    choice.get_by_label("on").check(force=True)
    expect(kick).to_contain_text("tp 8 with SP")


def test_one_layer_is_told_pass_by_pass(shown: Locator) -> None:
    fold(shown, "One layer, before and after").click()
    rows = shown.locator("[data-passes] tbody tr")
    expect(rows).to_have_count(4)
    for row, name in zip(
        rows.all(), ("one rank", "tensor parallel 8", "full recomp", "ZeRO-3 over 8"), strict=True
    ):
        expect(row).to_contain_text(name)
    expect(rows.nth(3)).to_contain_text("2 all-gathers over dp")


def test_a_degree_that_does_not_fit_is_refused_under_its_control(shown: Locator) -> None:
    enter(shown, "ep", "8")
    refused = shown.locator(".refusal:not([hidden])")
    expect(refused).to_contain_text("no routed experts; use ep=1")
    expect(refused.locator("xpath=..").locator('[data-pb="field-ep"]')).to_have_count(1)
    enter(shown, "ep", "1")
    expect(refused).to_have_count(0)


def test_a_pasted_configuration_is_the_model_and_a_mistake_is_answered_there(
    shown: Locator, pictures: Path
) -> None:
    fold(shown, "Own model").click()
    area = part(shown, "control-config")
    area.evaluate(PASTE, '{"model_type": "llama",')
    refused = shown.locator(".refusal:not([hidden])")
    expect(refused).to_contain_text("config is not JSON")
    area.evaluate(PASTE, json.dumps(LLAMA_2_7B, indent=1))
    expect(shown.locator(".kick")).to_contain_text("my-llama · 256 ranks")
    expect(refused).to_have_count(0)
    expect(part(shown, "control-model")).to_be_disabled()
    said = shown.locator(".note.idle").filter(has_text="Not in use: the pasted config.json is the model.")
    expect(said).to_have_count(1)
    shown.screenshot(path=pictures / "memory-pasted-light.png")
    area = part(shown, "control-config")
    area.press("Control+a")
    area.press("Delete")
    area.blur()
    expect(part(shown, "control-model")).to_be_enabled()
    expect(shown.locator(".kick")).to_contain_text("llama-3.1-70b")


def test_gpt2_is_drawn_at_its_length_by_the_papers_and_the_controls_say_both(
    shown: Locator, pictures: Path
) -> None:
    enter(shown, "tp", "1")
    enter(shown, "pp", "1")
    enter(shown, "microbatches", "auto")
    expect(part(shown, "control-sequence_parallel")).to_have_count(0)
    part(shown, "control-model").select_option("gpt2")
    expect(shown.locator(".kick")).to_contain_text("gpt2 · 8 ranks")
    expect(shown.locator(".refusal:not([hidden])")).to_have_count(0)
    said = shown.locator(".note.idle")
    expect(said.filter(has_text="Drawn with 1\u2009024, the model's positions.")).to_have_count(1)
    expect(said.filter(has_text="Not in use: the papers' accounting is drawn")).to_have_count(1)
    expect(part(shown, "control-framework")).to_be_enabled()
    expect(part(shown, "step-title")).to_contain_text("by the papers' accounting")
    expect(part(shown, "note")).to_contain_text("in place of PyTorch: model 'gpt2' has LayerNorm")
    shown.screenshot(path=pictures / "memory-gpt2-light.png")
    part(shown, "control-model").select_option("llama-3.1-70b")
    expect(said).to_have_count(0)


def test_typing_goes_on_while_another_control_comes_or_goes(shown: Locator, page: Page) -> None:
    field, tensor = part(shown, "field-pp"), part(shown, "control-tp")
    split = part(shown, "control-sequence_parallel")
    move = "(slider, to) => { slider.value = to; slider.dispatchEvent(new Event('input')); }"
    tensor.evaluate(move, "0")
    expect(split).to_have_count(0)
    field.focus()
    field.select_text()
    tensor.evaluate(move, "1")
    expect(split).to_have_count(1)
    page.keyboard.type("4")
    tensor.evaluate(move, "0")
    expect(split).to_have_count(0)
    expect(field).to_be_focused()
    expect(field).to_have_value("4")
    field.press("Enter")
    expect(shown.locator(".kick")).to_contain_text("pp 4")
