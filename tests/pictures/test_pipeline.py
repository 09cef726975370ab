import numpy as np
import pytest

from playbook.pictures.pipeline import Costs, pipeline_copies, pipeline_picture, takes_chunks, timed_orders
from playbook.pictures.pipeline_run import (
    emulation_levers,
    measured_data,
    measured_order,
    run_note,
    unit_seconds,
)

COSTS = Costs()


def test_costs_are_read_as_people_write_them():
    assert Costs.parse("1 : 1.2:0.8", latency=0.5) == Costs(
        forward=1.0, backward_input=1.2, backward_weight=0.8, latency=0.5
    )


@pytest.mark.parametrize("text", ["", "1:1", "1:1:1:1", "a:b:c", "0:1:1", "1:-1:1", "inf:1:1"])
def test_other_costs_are_refused_with_what_would_work(text):
    with pytest.raises(ValueError, match="such as 1:1:1"):
        Costs.parse(text)


def test_the_bubble_is_the_textbooks_in_both_conventions():
    (one,) = timed_orders(["1f1b"], 4, 16, COSTS)
    picture = pipeline_picture([one], COSTS)
    # (p - 1) / (m + p - 1) = 3 / 19 and (p - 1) / m = 3 / 16.
    assert picture["schedules"][0]["idle"] == ["15.8\u2009%", "18.8\u2009%", "9"]
    assert picture["headline"] == [
        "1F1B ends at 57 units and idles 15.8\u2009% of them.",
        "Rank 0 holds 4 micro-batches at its peak.",
    ]


def test_schedules_with_chunks_do_the_same_work_on_one_clock():
    plain, interleaved = timed_orders(["1f1b", "interleaved-1f1b"], 4, 8, COSTS, chunks=2)
    # Units are those of half a rank's layers: 24 units of work become 48, and 33 become 66.
    assert plain.timed.ideal == interleaved.timed.ideal == 48
    assert plain.timed.makespan == 66
    assert interleaved.timed.makespan == 57
    picture = pipeline_picture([plain, interleaved], COSTS)
    assert picture["headline"][0] == "Same work, two orders: 66 → 57 units."
    assert picture["unit"] == "1 unit = forward of 1/2 of a rank's layers"


def test_only_interleaved_schedules_take_chunks():
    assert [takes_chunks(name) for name in ("gpipe", "1f1b", "interleaved-1f1b")] == [False, False, True]


def test_no_schedule_at_all_is_refused():
    with pytest.raises(ValueError, match="choose at least one"):
        timed_orders([], 4, 8, COSTS)


def test_blocks_are_packed_rank_by_rank():
    lane = pipeline_picture(timed_orders(["gpipe"], 2, 2, COSTS), COSTS)["schedules"][0]
    assert np.frombuffer(lane["kind"], "u1").tolist() == [0, 0, 1, 1] * 2
    assert np.frombuffer(lane["microbatch"], "<u2").tolist()[:2] == [0, 1]
    assert lane["gap"]["words"].startswith("waits for B")


def test_real_times_are_laid_on_the_blocks_from_a_common_zero():
    (one,) = timed_orders(["1f1b"], 2, 1, COSTS)
    times = [("m0/F/stage0", 100.0, 0.02), ("m0/F/stage1", 100.022, 0.02)]
    run = measured_order(one, times, unit_s=0.02, source="emulated")
    assert run.done == 2
    assert run.makespan is None
    assert run.words == "… 2 of 4"
    assert run.start[0] == 0
    assert run.start[2] == pytest.approx(1.1)
    assert np.isnan(run.start[1])
    assert measured_data(one, run)["now"] == pytest.approx(2.1)


def test_a_whole_run_has_a_makespan_and_an_idle_share():
    (one,) = timed_orders(["1f1b"], 2, 1, COSTS)
    times = [("m0/F/stage0", 0, 1), ("m0/F/stage1", 1, 1), ("m0/B/stage1", 2, 2), ("m0/B/stage0", 4, 2)]
    run = measured_order(one, times, unit_s=1.0, source="emulated")
    assert run.makespan == one.timed.makespan == 6
    assert run.idle_over_makespan == pytest.approx(0.5)
    picture = pipeline_picture([one], COSTS, {"1f1b": run})
    assert picture["table"]["rows"][0]["difference"] == "0 ✓"
    assert picture["headline"][1] == "On real ranks: 6 units, 0 ✓."


def test_no_emulated_action_is_shorter_than_twenty_milliseconds():
    long = timed_orders(["1f1b"], 4, 64, Costs.parse("1:3:3"))
    assert unit_seconds(long) == pytest.approx(0.02)
    short = timed_orders(["1f1b"], 2, 2, COSTS)
    assert unit_seconds(short) == pytest.approx(0.04)
    assert "40 ms a unit" in run_note(short)


def test_schedules_of_one_picture_run_at_one_pace():
    plain, interleaved = timed_orders(["1f1b", "interleaved-1f1b"], 4, 32, COSTS, chunks=2)
    unit_s = unit_seconds([plain, interleaved])
    assert unit_s == pytest.approx(0.02)
    assert emulation_levers(plain, unit_s)["forward"] == 2
    assert emulation_levers(interleaved, unit_s)["forward"] == 1


def test_the_emulated_model_has_a_layer_for_every_stage():
    (one,) = timed_orders(["interleaved-1f1b"], 4, 8, COSTS, chunks=2)
    levers = emulation_levers(one, 0.02)
    assert levers["model"].layers == 8
    assert levers["chunks"] == 2
    assert levers["backward"] == 2 * levers["forward"]


def test_copies_run():
    forms = pipeline_copies(timed_orders(["interleaved-1f1b"], 4, 8, COSTS, chunks=2), COSTS)
    assert 'pb.schedule("interleaved-1f1b", stages=4, microbatches=8, chunks=2)' in forms["python"]
    scope: dict = {}
    exec(forms["python"], scope)
