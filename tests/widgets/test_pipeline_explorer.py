import json
from dataclasses import replace

import numpy as np
import pytest

from playbook.program.schedule import schedule
from playbook.schedules import plans
from widgets import PipelineExplorer
from widgets.takeaway import FORMS

pytestmark = pytest.mark.timeout(120)


def names(explorer) -> set[str]:
    return {one["name"] for one in explorer.controls}


def test_gpipe_and_1f1b_end_together_and_1f1b_holds_half():
    explorer = PipelineExplorer()
    gpipe, one_f_one_b = explorer.picture["schedules"]
    assert (gpipe["makespan"], one_f_one_b["makespan"]) == (33, 33)
    assert max(gpipe["peaks"]) == 8
    assert max(one_f_one_b["peaks"]) == 4
    assert explorer.headline.startswith("Same bubble, half the memory")


def test_the_blocks_are_those_of_the_engine():
    explorer = PipelineExplorer(stages=2, microbatches=2, schedules=["1f1b"])
    lane = explorer.picture["schedules"][0]
    assert lane["counts"] == [4, 4]
    assert np.frombuffer(lane["start"], "<f4").tolist() == [0, 1, 4, 7, 1, 2, 4, 5]


def test_the_first_picture_is_the_grid_of_four_by_four_over_seven_slots():
    explorer = PipelineExplorer(shown="forward", stages=4, microbatches=4)
    (lane,) = explorer.picture["schedules"]
    assert lane["makespan"] == 7
    assert "3/7" in explorer.headline
    assert explorer.actions[0]["off"]


@pytest.mark.parametrize("name", list(plans()))
def test_every_schedule_is_drawn_and_offered_to_run(name):
    explorer = PipelineExplorer(schedules=[name])
    assert explorer.picture["schedules"][0]["name"] == name
    assert not explorer.actions[0]["off"]
    assert explorer.png().startswith(b"\x89PNG")


def test_controls_are_offered_only_where_they_count():
    explorer = PipelineExplorer()
    assert {"chunks", "overlap", "gpu", "stage_costs"} & names(explorer) == set()
    explorer.schedules = ["interleaved-1f1b", "dualpipe"]
    explorer.cut = "own"
    assert {"chunks", "overlap", "stage_costs"} <= names(explorer)
    explorer.model = "llama-3.1-8b"
    assert "gpu" in names(explorer)
    assert {"costs", "overlap", "latency", "straggler", "cap", "stage_costs"} & names(explorer) == set()


def test_five_schedules_are_refused_and_the_picture_stays():
    explorer = PipelineExplorer()
    before = explorer.headline
    explorer.schedules = ["gpipe", "1f1b", "zb-h1", "zb-h2", "zbv"]
    assert explorer.refusal["control"] == "schedules"
    assert "one clock holds four" in explorer.refusal["text"]
    assert explorer.headline == before


@pytest.mark.parametrize(
    ("control", "value", "words"),
    [
        ("costs", "1:1", "such as 1:1:1"),
        ("straggler", "9 × 2", "no rank 9"),
        ("stages", 0, "stages=0"),
        ("cap", -1.0, "0 for no cap"),
        ("overlap", 1.5, "use 0.67 to 1"),
        ("overlap", 0.2, "max(F, B)/(F + B) = 0.667"),
        ("cap", float("nan"), "0 for no cap"),
        ("cut", "balanced", "choose a model"),
        ("shown", "sideways", "use one of forward, step, scatter"),
        ("recompute", "maybe", "use on or off"),
    ],
)
def test_a_refusal_stands_under_its_control(control, value, words):
    explorer = PipelineExplorer()
    setattr(explorer, control, value)
    assert explorer.refusal["control"] == control
    assert words in explorer.refusal["text"]


def test_an_order_of_ones_own_is_taken_from_a_csv_with_its_size(tmp_path):
    path = tmp_path / "my_order.csv"
    schedule("1f1b", 2, 3).to_csv(path)
    explorer = PipelineExplorer(schedules=["1f1b", str(path)])
    assert (explorer.stages, explorer.microbatches) == (2, 3)
    assert [lane["name"] for lane in explorer.picture["schedules"]] == ["1f1b", "my_order.csv"]
    explorer.microbatches = 4
    assert "the order my_order.csv has 3" in explorer.refusal["text"]


def test_a_schedule_object_is_shown_beside_the_folders_own_of_that_name():
    found = schedule("gpipe", 2, 4)
    explorer = PipelineExplorer(schedules=["gpipe", found, replace(found, name="found")])
    assert explorer.schedules == ["gpipe", "own gpipe", "found"]
    assert len({lane["end"] for lane in explorer.picture["schedules"]}) == 1
    options = next(one for one in explorer.controls if one["name"] == "schedules")["options"]
    assert ["found", "found"] in [list(option) for option in options]


def test_an_unknown_schedule_is_refused_with_all_names():
    with pytest.raises(ValueError, match=r"'zb-x' is not a schedule; use one of 1f1b, dualpipe"):
        PipelineExplorer(schedules=["zb-x"])


def test_the_scatter_holds_all_twelve_and_its_headline_names_the_best_under_the_cap():
    explorer = PipelineExplorer(shown="scatter", cap=3.0)
    assert len(explorer.picture["scatter"]["points"]) == 12
    assert explorer.headline.startswith("Within 3\u2009A the best is ")
    assert explorer.png().startswith(b"\x89PNG")


def test_a_model_brings_seconds_gigabytes_and_the_gpus_capacity():
    explorer = PipelineExplorer(model="llama-3.1-8b", schedules=["1f1b"])
    lane = explorer.picture["schedules"][0]
    assert explorer.picture["units"] == {"time": "ms", "hold": "GB"}
    # The driver of an H100 reports 81 559 MiB.
    assert explorer.picture["cap"]["value"] == pytest.approx(81_559 * 2**20 / 1e9)
    assert lane["end"].endswith("ms")
    assert lane["peak"][1] == "peak, rank 0"
    assert len(lane["curves"]) == 4
    times = np.frombuffer(lane["curves"][0]["times"], "<f4")
    assert (np.diff(times) >= 0).all()
    held = np.frombuffer(lane["curves"][0]["held"], "<f4")
    assert held.max() == pytest.approx(lane["peaks"][0], rel=1e-3)
    # The last of four ranks sends nothing on in forward, the first nothing back: 3 of 4 forwards send.
    kind = np.frombuffer(lane["kind"], "u1")
    assert int((kind == 16).sum()) == 3 * 8
    explorer.gpu = "a100-40"
    assert "does not fit in" in explorer.headline
    assert lane["message"].startswith("message ")


def test_a_balanced_cut_of_a_model_is_no_slower():
    explorer = PipelineExplorer(model="llama-3.1-8b", schedules=["1f1b"])
    equal = explorer.picture["schedules"][0]["makespan"]
    explorer.cut = "balanced"
    assert explorer.refusal == {}
    assert explorer.picture["schedules"][0]["makespan"] <= equal


def test_a_model_too_shallow_for_the_stages_is_refused_in_words():
    explorer = PipelineExplorer(schedules=["zbv"])
    explorer.model = "toy-15m"
    assert explorer.refusal["text"].startswith("toy-15m has 6 layers for 8 stages")


def test_files_are_sent_and_written(tmp_path, monkeypatch):
    explorer = PipelineExplorer()
    sent = []
    monkeypatch.setattr(explorer, "send", lambda content, buffers=None: sent.append((content, buffers)))
    for form in FORMS:
        explorer._on_message(explorer, {"kind": "export", "form": form}, [])
    assert [content["name"] for content, _ in sent] == [
        "pipeline.png",
        "pipeline-times.csv",
        "gpipe.csv",
        "1f1b.csv",
        "pipeline-trace.json",
    ]
    assert sent[0][1][0].startswith(b"\x89PNG")
    assert sent[3][1][0].decode().startswith("0F0,0F1,0F2,0F3,0B0")
    assert explorer.to_png(tmp_path / "a.png").read_bytes() == sent[0][1][0]
    assert explorer.to_csv(tmp_path / "a.csv").read_text().startswith("scenario,rank,op")
    assert json.loads(explorer.to_chrome_trace(tmp_path / "a.json").read_text())["traceEvents"]


def whole(explorer, name: str) -> dict:
    """What was measured of a schedule, after the checks that hold for every complete run."""
    lane = next(one for one in explorer.picture["schedules"] if one["name"] == name)
    measured = explorer.measured["schedules"][name]
    start = np.frombuffer(measured["start"], "<f4")
    assert not np.isnan(start).any()
    assert measured["whole"]
    assert measured["source"] == "emulated"
    # Sleeps take at least their time, so a run is never faster than the plan.
    assert measured["now"] >= lane["makespan"] * 0.99
    return measured


@pytest.mark.dist
def test_real_ranks_run_the_order_and_their_strips_come_with_it():
    explorer = PipelineExplorer(stages=2, microbatches=3, schedules=["gpipe", "1f1b"])
    assert explorer.measured == {}
    job = explorer.run()
    assert explorer.status["state"] in ("queued", "running", "done")
    run = explorer.wait(90)
    assert job.state == "done"
    assert explorer.status["state"] == "done"
    assert len(run.values) == 2
    assert [kind for kind, _ in whole(explorer, "1f1b")["kinds"]] == ["F", "B"]
    whole(explorer, "gpipe")
    assert "On real ranks" in explorer.headline
    labels = [row["label"] for row in explorer.picture["table"]["rows"]]
    assert "1F1B, forward" in labels
    explorer.microbatches = 4
    assert explorer.measured == {}
    assert "its strips come back" in explorer.note


@pytest.mark.dist
def test_split_backwards_overlapped_pairs_and_uneven_stages_run_too(tmp_path):
    path = tmp_path / "mine.csv"
    schedule("zbv", 2, 4).to_csv(path)
    given = {"stages": 2, "microbatches": 4, "cut": "heavy head", "latency": 0.5, "overlap": 0.8}
    explorer = PipelineExplorer(schedules=["zbv", "dualpipe-v", str(path)], **given)
    explorer.run()
    explorer.wait(110)
    assert [kind for kind, _ in whole(explorer, "zbv")["kinds"]] == ["F", "I", "W"]
    assert "F&B" in [kind for kind, _ in whole(explorer, "dualpipe-v")["kinds"]]
    whole(explorer, "mine.csv")


@pytest.mark.dist
def test_a_run_is_cancelled_and_can_be_run_again():
    explorer = PipelineExplorer(stages=2, microbatches=64, schedules=["1f1b"])
    job = explorer.run()
    with pytest.raises(ValueError, match="in progress"):
        explorer.run()
    assert explorer.cancel()
    with pytest.raises(RuntimeError, match="cancel"):
        explorer.wait(60)
    assert job.state == "cancelled"
    assert explorer.status["state"] == "cancelled"
    assert explorer.status["word"] == "cancelled"
