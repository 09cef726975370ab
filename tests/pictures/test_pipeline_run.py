import numpy as np
import pytest

from playbook.pictures.pipeline import pipeline_picture
from playbook.pictures.pipeline_orders import timed_orders
from playbook.pictures.pipeline_run import measured_data, measured_order
from playbook.pictures.pipeline_setting import Setting
from playbook.pictures.pipeline_strips import Strips

SMALL = Setting(stages=2, microbatches=1)
WHOLE = [("m0/F/stage0", 0, 1), ("m0/F/stage1", 1, 1), ("m0/B/stage1", 2, 2.2), ("m0/B/stage0", 4.2, 2)]


def one(name: str = "1f1b", setting: Setting = SMALL):
    return timed_orders([name], setting)[0]


def test_real_times_are_laid_on_the_blocks_from_a_common_zero():
    times = [("m0/F/stage0", 100.0, 0.02), ("m0/F/stage1", 100.022, 0.02)]
    run = measured_order(one(), times, unit_s=0.02, source="emulated")
    assert run.done == 2
    assert run.makespan is None
    assert run.words == "… 2 of 4"
    assert run.start[0] == 0
    assert run.start[2] == pytest.approx(1.1)
    assert np.isnan(run.start[1])
    assert measured_data(one(), run)["now"] == pytest.approx(2.1)


def test_a_whole_run_has_a_makespan_an_idle_share_and_an_error_for_each_kind():
    run = measured_order(one(), WHOLE, unit_s=1.0, source="emulated")
    assert run.makespan == pytest.approx(6.2)
    assert run.idle_over_makespan == pytest.approx(0.5)
    picture = pipeline_picture([one()], SMALL, {"1f1b": run})
    rows = {row["label"]: row for row in picture["table"]["rows"]}
    assert rows["1F1B, makespan"]["difference"] == "+3.3\u2009%"
    assert rows["1F1B, forward"]["difference"] == "0 ✓"
    # Backwards of 2.2 and 2 against 2: a mean of 2.1.
    assert rows["1F1B, backward"]["measured"] == "2.1"
    assert rows["1F1B, backward"]["difference"] == "+5.0\u2009%"
    assert picture["headline"][1] == "On real ranks: 6.2 units, +3.3\u2009%."
    assert measured_data(one(), run)["kinds"] == [["F", "0 ✓"], ["B", "+5.0\u2009%"]]


def test_waits_stand_before_the_action_that_waited():
    run = measured_order(one(), WHOLE, 2.0, "emulated", {"m0/B/stage0": 0.5})
    assert run.waited.tolist() == [0, 0.25, 0, 0]


def test_a_run_is_laid_on_the_clock_of_other_schedules_beside_it():
    alone = one()
    strips = Strips([alone], unit_s=1.0)
    strips.take([{"kind": "run", "rank": rank, "name": "0"} for rank in (0, 1)])
    strips.take(
        {
            "kind": "action",
            "rank": int(name[-1]),
            "what": WHAT[name[3]],
            "name": name,
            "start_s": start,
            "duration_s": long,
        }
        for name, start, long in WHOLE
    )
    assert strips.progress == [1.0]
    both = timed_orders(["1f1b", "zbv"], SMALL)
    # Beside a schedule of two chunks a unit is half as long, so the numbers double.
    (run,) = strips.on_clock_of(both).values()
    assert run.makespan == pytest.approx(2 * 6.2)
    assert strips.on_clock_of([alone])["1f1b"].makespan == pytest.approx(6.2)


WHAT = {"F": "forward", "B": "backward"}


def test_waits_of_events_are_kept_with_their_actions():
    strips = Strips([one()], unit_s=0.5)
    strips.take(
        [
            {"kind": "run", "rank": 1, "name": "0"},
            {
                "kind": "action",
                "rank": 1,
                "what": "wait",
                "name": "m0/F/stage1",
                "start_s": 0,
                "duration_s": 1.0,
            },
            {
                "kind": "action",
                "rank": 1,
                "what": "forward",
                "name": "m0/F/stage1",
                "start_s": 1,
                "duration_s": 1.0,
            },
        ]
    )
    assert strips.measured["1f1b"].waited[2] == 2


def test_both_halves_of_a_pair_get_the_time_of_the_pair():
    setting = Setting(stages=2, microbatches=4)
    pair = one("dualpipe-v", setting)
    timed = pair.timed
    first = int(np.flatnonzero(timed.overlapped)[0]) - 1
    times = [(timed.ids[first], 10.0, 1.0), (timed.ids[first + 1], 11.0, 2.0)]
    run = measured_order(pair, times, 1.0, "emulated")
    assert run.start[first] == run.start[first + 1] == 0
    assert run.duration[first] == run.duration[first + 1] == 3
    assert run.kinds(timed) == [("F&B", 1, float(timed.duration[first]), 3.0)]
