import json

import ipywidgets
import pytest

from widgets import CollectiveExplorer, MemoryExplorer, PipelineExplorer
from widgets.base import library

EXPLORERS = (CollectiveExplorer, MemoryExplorer, PipelineExplorer)


@pytest.fixture(params=EXPLORERS, ids=lambda explorer: explorer.__name__)
def explorer(request):
    return request.param()


def test_every_control_is_a_synced_trait_with_a_descriptor_and_a_help_text(explorer):
    shown = {one["name"]: one for one in explorer.controls}
    for name in explorer.CONTROLS:
        assert explorer.traits()[name].metadata["sync"]
        assert explorer.traits()[name].help
        assert name not in shown or shown[name]["label"]


def test_the_first_display_tells_its_finding_with_a_number_and_offers_a_run(explorer):
    assert any(character.isdigit() for character in explorer.headline)
    assert explorer.actions[0]["name"] == "run"
    assert explorer.version == 1
    assert explorer.error == ""


def test_the_library_is_one_widget_for_all_explorers():
    made = [explorer() for explorer in EXPLORERS]
    assert {one.library.model_id for one in made} == {library().model_id}


def test_a_closed_library_is_made_again():
    before = library()
    before.close()
    assert library() is not before


def test_one_message_carries_a_change_and_version_comes_with_it(monkeypatch):
    explorer = PipelineExplorer()
    sent = []
    monkeypatch.setattr(explorer, "_send", lambda message, buffers=None: sent.append(message))
    explorer.microbatches = 16
    states = [message["state"] for message in sent if message["method"] == "update"]
    assert len([state for state in states if "version" in state]) == 1
    assert "picture" in next(state for state in states if "version" in state)


def test_a_refused_value_is_worded_under_its_control_and_the_picture_stays():
    explorer = CollectiveExplorer()
    before = explorer.picture
    explorer.ranks = 0
    assert explorer.refusal["control"] == "ranks"
    assert "ranks=0" in explorer.refusal["text"]
    assert explorer.picture == before
    explorer.ranks = 8
    assert explorer.refusal == {}


def test_a_value_of_the_wrong_type_from_the_front_end_is_refused_in_words():
    explorer = PipelineExplorer()
    explorer.set_state({"stages": 4.5})
    assert explorer.stages == 4
    assert explorer.refusal == {"control": "stages", "text": "stages=4.5: use a whole number"}


def test_a_fault_of_ours_is_named_and_its_traceback_kept(monkeypatch):
    explorer = PipelineExplorer()
    monkeypatch.setattr(explorer, "draw", lambda: 1 / 0)
    explorer.microbatches = 4
    assert explorer.error.startswith("internal error: ZeroDivisionError")
    assert "test_base.py" in explorer.last_error


def test_the_constructor_refuses_what_has_no_picture():
    with pytest.raises(ValueError, match="ranks=0"):
        CollectiveExplorer(ranks=0)


def test_an_unknown_argument_is_named_with_the_closest_one():
    with pytest.raises(TypeError, match=r"no argument 'rank'; did you mean ranks="):
        CollectiveExplorer(rank=4)


def test_pinning_keeps_the_picture_and_pinning_again_lets_go(explorer):
    explorer.on_pin()
    assert explorer.pinned["headline"] == explorer.picture["headline"]
    explorer.on_pin()
    assert explorer.pinned == {}


def test_an_explorer_can_be_observed_and_linked_and_put_in_a_box():
    a, b = PipelineExplorer(), PipelineExplorer()
    ipywidgets.link((a, "microbatches"), (b, "microbatches"))
    a.microbatches = 16
    assert b.picture["schedules"][0]["makespan"] == 57
    assert ipywidgets.VBox([a, b]).children == (a, b)


def test_it_shows_a_png_and_its_finding_where_no_kernel_is(explorer):
    data, _ = explorer._repr_mimebundle_()
    assert data["image/png"].startswith("iVBOR")
    assert data["text/plain"].startswith(explorer.headline)


def test_it_is_copied_as_python_command_and_json(explorer):
    forms = explorer.copies()
    assert compile(forms["python"], "copied", "exec")
    assert forms["command"].startswith("playbook ")
    assert json.loads(forms["json"])


def test_ten_explorers_stay_well_below_200_kilobytes_of_saved_state():
    ipywidgets.Widget.close_all()
    made = [EXPLORERS[place % 3]() for place in range(10)]
    assert made
    state = ipywidgets.Widget.get_manager_state(drop_defaults=False)
    size = len(json.dumps(state))
    assert size < 185_000, f"{size} bytes"  # the limit is 200 kB; more explorers are to come
