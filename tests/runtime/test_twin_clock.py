from contextlib import contextmanager
from typing import Any

import torch

from playbook.runtime.twin_clock import NoClock, hold_nothing


def test_without_a_gpu_outputs_are_filled_at_once_and_handed_back():
    tensor, filled = torch.zeros(1), []
    done = NoClock().run(5.0, lambda: filled.append(True), [tensor], in_order=False)
    assert filled == [True]
    assert done.done()
    assert done.wait()[0] is tensor


def test_time_can_be_slept_away_where_it_is_wanted(monkeypatch):
    slept = []
    monkeypatch.setattr("playbook.runtime.twin_clock.time.sleep", slept.append)
    NoClock(sleeps=True).run(0.25, lambda: None, [], in_order=True)
    assert slept == [0.25]


def test_a_network_that_is_off_holds_nothing():
    with hold_nothing(10.0) as held:
        assert held is None


def test_a_collective_is_filled_inside_its_wait(monkeypatch):
    # The GPU's clock with a stream that does nothing: what is filled is part of the modelled time.
    from playbook.runtime import twin_clock

    order = []

    @contextmanager
    def hold(seconds):
        order.append(("begin", seconds))
        yield
        order.append(("end", seconds))

    class Stream:
        def wait_stream(self, other):
            order.append("waits for the caller")

    @contextmanager
    def on(stream):
        yield

    class Future:
        def __init__(self, devices):
            self.devices = devices

        def set_result(self, tensors):
            self.tensors = tensors

    monkeypatch.setattr(twin_clock.torch.cuda, "Stream", lambda device: Stream())
    monkeypatch.setattr(twin_clock.torch.cuda, "current_stream", lambda device: Stream())
    monkeypatch.setattr(twin_clock.torch.cuda, "stream", on)
    monkeypatch.setattr(twin_clock.torch.futures, "Future", Future)
    clock = twin_clock.GpuClock(torch.device("cuda", 0), hold)
    tensor = torch.zeros(1)
    later: Any = clock.run(0.5, lambda: order.append("fill"), [tensor], in_order=False)
    assert order == ["waits for the caller", ("begin", 0.5), "fill", ("end", 0.5)]
    assert later.tensors == [tensor]
    order.clear()
    at_once: Any = clock.run(0.5, lambda: order.append("fill"), [tensor], in_order=True)
    assert order == [("begin", 0.5), "fill", ("end", 0.5)]
    assert at_once.tensors == []
