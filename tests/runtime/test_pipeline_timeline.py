import pytest
import torch

from playbook.runtime import pipeline_timeline
from playbook.runtime.pipeline_timeline import CudaTimeline, Timeline, make_row


def test_rows_are_those_of_the_timeline_table():
    assert make_row("backward_input", "m3/I/stage5", 1.0, 0.5, 0) == {
        "op": "m3/I/stage5",
        "lane": "compute",
        "kind": "backward_input",
        "label": "5I3",
        "microbatch": 3,
        "start_s": 1.0,
        "duration_s": 0.5,
        "low_s": 0.5,
        "high_s": 0.5,
        "bytes": 0,
    }


@pytest.mark.parametrize(
    ("kind", "action", "op", "shown"),
    [
        ("wait", "m0/F/stage1", "m0/F/stage1", "wait"),
        ("send", "m0/F/stage1", "m0/F/stage1/send@pp#0", "send"),
        ("drain", "m0/F/stage1", "m0/F/stage1/send@pp#0", "wait"),
        ("collective", "m-1/O/stage2", "m-1/O/stage2/all_reduce@pp#0", "collective"),
    ],
)
def test_what_communicates_has_the_id_of_its_message(kind, action, op, shown):
    row = make_row(kind, action, 0.0, 0.0, 64)
    assert (row["op"], row["kind"], row["lane"], row["bytes"]) == (op, shown, "communication", 64)


def run(timeline, *steps):
    for kind, action in steps:
        with timeline.during(kind, action):
            pass


def test_alive_is_what_has_begun_forward_and_not_ended_its_last_backward():
    timeline = Timeline()
    run(
        timeline,
        ("forward", "m0/F/stage0"),
        ("forward", "m1/F/stage0"),
        ("backward_input", "m0/I/stage0"),
        ("forward", "m2/F/stage0"),  # m0 is still alive: its weights wait
        ("backward_weight", "m0/W/stage0"),
        ("backward", "m1/B/stage0"),
        ("forward", "m3/F/stage0"),
    )
    assert timeline.peak_live == 3


def test_posting_a_receive_is_no_row_and_each_row_is_told_at_once():
    told = []
    timeline = Timeline(zero_s=0.0, report=told.append)
    with timeline.during("receive", "m0/F/stage1", torch.zeros(4)):
        pass
    run(timeline, ("forward", "m0/F/stage1"))
    assert [row["kind"] for row in told] == ["forward"]
    assert timeline.rows == told


class Event:
    """An event that is as late as the stream's clock was when it was recorded."""

    stream_ms = 0.0

    def record(self, _stream):
        self.at_ms = Event.stream_ms

    def synchronize(self):
        pass

    def elapsed_time(self, other):
        return other.at_ms - self.at_ms


class Cuda:
    synchronised = 0

    def __init__(self):
        self.Event = lambda enable_timing: Event()

    def synchronize(self, _device):
        Cuda.synchronised += 1

    def current_stream(self, _device):
        return None


def test_on_a_gpu_events_tell_the_times_and_nothing_is_waited_for_inside_the_step(monkeypatch):
    class Torch:
        cuda = Cuda()
        Tensor = torch.Tensor

    class Time:
        monotonic = staticmethod(lambda: 50.0)

    monkeypatch.setattr(pipeline_timeline, "torch", Torch)
    monkeypatch.setattr(pipeline_timeline, "time", Time)
    Event.stream_ms = 1000.0
    timeline = CudaTimeline(device=torch.device("cuda"), zero_s=49.0)
    before = Cuda.synchronised
    for kind, action, took_ms in (
        ("wait", "m0/F/stage1", 10.0),
        ("forward", "m0/F/stage1", 20.0),
        ("receive", "m1/F/stage1", 5.0),
        ("backward", "m0/B/stage1", 40.0),
    ):
        with timeline.during(kind, action):
            Event.stream_ms += took_ms
    assert Cuda.synchronised == before
    assert timeline.rows == []
    timeline.finish()
    assert [(row["kind"], row["start_s"], row["duration_s"]) for row in timeline.rows] == [
        ("wait", pytest.approx(1.0), pytest.approx(0.01)),
        ("forward", pytest.approx(1.01), pytest.approx(0.02)),
        ("backward", pytest.approx(1.035), pytest.approx(0.04)),
    ]
    assert timeline.peak_live == 1
