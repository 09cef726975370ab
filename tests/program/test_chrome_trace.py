import json

import pandas as pd
import pytest

from playbook.program.chrome_trace import chrome_trace
from playbook.program.schedule import schedule
from playbook.tables import table

DOCUMENTED = {
    "X": {"name", "cat", "ph", "ts", "dur", "pid", "tid", "args"},
    "M": {"name", "ph", "pid", "tid", "args"},
    "s": {"name", "cat", "ph", "id", "ts", "pid", "tid"},
    "f": {"name", "cat", "ph", "id", "bp", "ts", "pid", "tid"},
}
"""Fields of each phase in the Trace Event Format document; no other phase is written."""


def events(trace, phase):
    return [event for event in trace["traceEvents"] if event["ph"] == phase]


@pytest.fixture
def trace():
    return json.loads(schedule("1f1b", 2, 2).simulate(comm=0.5).to_chrome_trace())


def test_every_event_has_the_documented_fields(trace):
    for event in trace["traceEvents"]:
        assert set(event) == DOCUMENTED[event["ph"]]
    assert trace["displayTimeUnit"] in ("ms", "ns")
    assert trace["otherData"] == {"source": "simulated"}


def test_a_cost_unit_is_a_second_and_times_are_microseconds(trace):
    """1B0 runs from 2.5 to 4.5."""
    found = next(event for event in events(trace, "X") if event["name"] == "1B0")
    assert (found["ts"], found["dur"]) == (2_500_000, 2_000_000)
    assert (found["cat"], found["args"]["op"]) == ("backward", "m0/B/stage1")


def test_a_pipeline_is_a_process_and_a_rank_a_thread(trace):
    names = {(e["tid"], e["args"]["name"]) for e in events(trace, "M") if e["name"] == "thread_name"}
    assert names == {(0, "rank 0"), (1, "rank 1")}
    assert [e["args"] for e in events(trace, "M") if e["name"] == "process_name"] == [{"name": "pipeline"}]
    assert {event["pid"] for event in trace["traceEvents"]} == {1}


def test_each_message_is_an_arrow_from_its_senders_end_to_its_receivers_start(trace):
    slices = {event["name"]: event for event in events(trace, "X")}
    starts, ends = events(trace, "s"), events(trace, "f")
    assert len(starts) == len(ends) == 4
    arrow = next(one for one in starts if one["name"] == "backward of micro-batch 0")
    head = next(one for one in ends if one["id"] == arrow["id"])
    sender, receiver = slices["1B0"], slices["0B0"]
    assert (arrow["tid"], arrow["ts"]) == (sender["tid"], sender["ts"] + sender["dur"])
    assert (head["tid"], head["ts"], head["bp"]) == (receiver["tid"], receiver["ts"], "e")
    assert len({one["id"] for one in starts}) == 4


def test_actions_of_a_rank_touch_and_never_overlap_after_rounding():
    timed = schedule("1f1b", 4, 8).simulate(forward=1 / 3, backward_input=1 / 7, backward_weight=1 / 11)
    trace = chrome_trace(timed.table)
    for rank in range(4):
        mine = [event for event in events(trace, "X") if event["tid"] == rank]
        for one, after in zip(mine, mine[1:], strict=False):
            assert round((one["ts"] + one["dur"]) * 1000) <= round(after["ts"] * 1000)


def test_a_measured_timeline_of_two_scenarios_has_two_processes_and_threads_for_its_lanes():
    common = {"rank": 0, "label": "x", "microbatch": 0, "start_s": 0.0, "duration_s": 1.0, "bytes": 8}
    times = {"low_s": 1.0, "high_s": 1.0, "source": "measured:gloo"}
    rows = [
        {"scenario": "a", "op": "m0/F/stage0", "lane": "compute", "kind": "forward"},
        {"scenario": "a", "op": "m0/F/stage0/send@pp#0", "lane": "comm", "kind": "send"},
        {"scenario": "b", "op": "m0/F/stage1", "lane": "compute", "kind": "forward", "rank": 1},
    ]
    trace = chrome_trace(table("timeline", [{**common, **times, **row} for row in rows]))
    named = [e["args"]["name"] for e in events(trace, "M") if "sort_index" not in e["args"]]
    assert named == ["a", "b", "rank 0", "rank 0, comm", "rank 1"]
    assert events(trace, "s") == []
    assert len({(event["pid"], event["tid"]) for event in events(trace, "X")}) == 3


def test_an_empty_timeline_is_an_empty_trace():
    assert chrome_trace(table("timeline"))["traceEvents"] == []


def test_the_text_is_written_to_a_path_too(tmp_path):
    timed = schedule("gpipe", 2, 2).simulate()
    text = timed.to_chrome_trace(tmp_path / "trace.json")
    assert (tmp_path / "trace.json").read_text() == text
    csv = timed.to_csv(tmp_path / "timeline.csv")
    assert (tmp_path / "timeline.csv").read_text() == csv
    assert len(pd.read_csv(tmp_path / "timeline.csv")) == 8
