import pytest

from widgets import PipelineExplorer


def test_an_overlap_counts_only_where_a_pair_is_shown():
    explorer = PipelineExplorer(overlap=0.7, costs="1 : 4 : 4")
    assert explorer.refusal == {}
    explorer.schedules = ["dualpipe"]
    assert "use 0.89 to 1" in explorer.refusal["text"]
    explorer.overlap = 1.0
    slider = next(one for one in explorer.controls if one["name"] == "overlap")
    assert slider["values"] == [0.9, 0.95, 1.0]


def test_dualpipe_on_one_rank_is_drawn():
    explorer = PipelineExplorer(stages=1, schedules=["dualpipe"])
    assert explorer.picture["schedules"][0]["makespan"] == 24
    assert explorer.picture["schedules"][0]["formula"]["holds"]


@pytest.mark.parametrize(
    ("control", "words"),
    [("stages", "whole number"), ("latency", "use a number"), ("cap", "use a number")],
)
def test_a_word_for_a_number_is_refused_sent_back_and_forgotten_with_the_old_value(
    control, words, monkeypatch
):
    explorer = PipelineExplorer()
    before, sent = getattr(explorer, control), []
    monkeypatch.setattr(explorer, "_send", lambda message, buffers=None: sent.append(message))
    explorer.set_state({control: "many"})
    assert getattr(explorer, control) == before
    assert explorer.refusal["control"] == control
    assert f"{control}='many': " in explorer.refusal["text"]
    assert words in explorer.refusal["text"]
    assert {control: before} in [message.get("state") for message in sent]
    explorer.set_state({control: before})
    assert explorer.refusal == {}
    assert explorer.error == ""


def test_the_fold_names_only_what_lies_in_it():
    explorer = PipelineExplorer()

    def briefs() -> list[str]:
        return [one["brief"] for one in explorer.controls if one.get("more") == "More"]

    assert briefs() == ["latency", "recompute", "cut", "slow rank", "cap"]
    explorer.schedules = ["interleaved-1f1b"]
    assert briefs()[0] == "chunks"
    explorer.model = "llama-3.1-8b"
    assert briefs() == ["chunks", "recompute", "cut"]


def test_a_run_is_named_by_its_schedules():
    assert PipelineExplorer(schedules=["1f1b", "zbv"]).task("run").name == "1F1B and ZB-V"
