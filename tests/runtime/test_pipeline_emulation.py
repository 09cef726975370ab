import time
from typing import Any

import pytest
import torch
from torch import nn

from playbook.program.schedule import schedule
from playbook.runtime import pipeline_emulation
from playbook.runtime.pipeline_emulation import (
    Costs,
    Emulation,
    StandIn,
    blank,
    oversleep,
    stamp,
    stamped,
    stand_ins,
)
from tests.shapes import TINY

NOTHING: Any = None


@pytest.mark.parametrize("oversleep_s", [0.0, 0.001, 0.05])
def test_no_action_ends_before_its_time_however_long_the_machine_overslept_before(oversleep_s: float):
    clock = Emulation(costs=NOTHING, oversleep_s=oversleep_s)
    for _ in range(10):
        moment_s = time.monotonic() + 0.01
        clock._sleep_until(moment_s)
        assert time.monotonic() >= moment_s


class Clock:
    """A clock that goes on when somebody sleeps."""

    def __init__(self):
        self.now_s = 100.0

    def monotonic(self):
        return self.now_s

    def sleep(self, seconds):
        self.now_s += seconds


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(pipeline_emulation, "time", made)
    return made


def costs(name="1f1b", ranks=2, microbatches=2, **units):
    order = schedule(name, ranks, microbatches)
    return Costs(order, order.simulate(**units), unit_s=2.0)


def act(emulation, kind, action):
    with emulation.during(kind, action):
        pass


def spans(emulation, *kinds):
    rows = [row for row in emulation.rows if not kinds or row["kind"] in kinds]
    return [(row["op"], row["start_s"], row["duration_s"]) for row in rows]


def test_actions_follow_each_other_without_a_gap(clock):
    emulation = Emulation(costs=costs(backward=3.0), zero_s=100.0)
    act(emulation, "forward", "m0/F/stage0")
    clock.now_s += 0.0005  # the rank's own work between two actions, within what does not count
    act(emulation, "backward", "m0/B/stage0")
    assert spans(emulation) == [
        ("m0/F/stage0", 0.0, 2.0),
        ("m0/B/stage0", 2.0, 6.0),
    ]
    assert emulation.peak_live == 1


def test_a_rank_that_is_held_up_starts_later(clock):
    emulation = Emulation(costs=costs(), zero_s=100.0)
    clock.now_s += 0.5
    act(emulation, "forward", "m0/F/stage0")
    # of half a second one millisecond counts as the rank's own work
    assert spans(emulation) == [("m0/F/stage0", pytest.approx(0.499), pytest.approx(2.0))]


def test_a_message_arrives_a_latency_after_its_senders_end(clock):
    emulation = Emulation(costs=costs(), latency_s=0.5, zero_s=100.0)
    message = torch.zeros(2, 4)
    with emulation.during("wait", "m0/F/stage1", message):
        clock.now_s += 1.0001
        stamp(message, 101.0)
    act(emulation, "forward", "m0/F/stage1")
    assert spans(emulation) == [
        ("m0/F/stage1", 0.0, pytest.approx(1.5)),
        ("m0/F/stage1", pytest.approx(1.5), pytest.approx(2.0)),
    ]
    assert [row["bytes"] for row in emulation.rows] == [32, 0]


def test_a_message_that_is_late_shows(clock):
    emulation = Emulation(costs=costs(), zero_s=100.0)
    message = torch.zeros(2, 4)
    with emulation.during("wait", "m0/F/stage1", message):
        clock.now_s += 1.25
        stamp(message, 101.0)
    act(emulation, "forward", "m0/F/stage1")
    # a quarter of a second under way, of which one millisecond counts as handing over
    assert spans(emulation, "forward") == [("m0/F/stage1", pytest.approx(1.249), pytest.approx(2.0))]


def test_a_send_carries_the_end_of_what_was_computed(clock):
    emulation = Emulation(costs=costs(), zero_s=100.0)
    act(emulation, "forward", "m0/F/stage0")
    message = torch.zeros(2, 4)
    with emulation.during("send", "m0/F/stage0", message):
        pass
    assert stamped(message) == 102.0
    assert emulation.rows[-1]["op"] == "m0/F/stage0/send@pp#0"


def test_both_of_an_overlapped_pair_carry_the_pairs_time(clock):
    made = costs("dualpipe", 4, 8, forward=1, backward=2, overlap=2.5)
    (first, second), *_ = made.second.items()
    emulation = Emulation(costs=made, zero_s=100.0)
    act(emulation, "forward", first)
    assert emulation.rows == []
    act(emulation, "backward", second)
    assert spans(emulation) == [(first, 0.0, 5.0), (second, 0.0, 5.0)]


def test_rows_are_reported_in_order_and_while_the_next_action_sleeps(clock):
    told = []
    emulation = Emulation(
        costs=costs(), zero_s=100.0, report=lambda row: told.append((row["op"], clock.now_s))
    )
    act(emulation, "forward", "m0/F/stage0")
    assert told == []
    act(emulation, "backward", "m0/B/stage0")
    assert told == [("m0/F/stage0", 102.0)]
    emulation.finish()
    assert [op for op, _ in told] == ["m0/F/stage0", "m0/B/stage0"]


def test_a_backward_of_two_parts_costs_both():
    made = costs("zb-h1", 2, 4, backward_input=1, backward_weight=3)
    assert made.alone_s("m0/I/stage0") == 2.0
    assert made.alone_s("m0/B/stage0") == 8.0


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_stamp_is_read_as_it_was_written(dtype):
    message = torch.zeros(1, 3, 4, dtype=dtype)
    stamp(message, 12_345.678_901)
    assert stamped(message) == 12_345.678_901


def test_stand_ins_send_what_the_model_sends():
    order = schedule("1f1b", 2, 2)
    stage: Any = nn.Linear(1, 1)
    stage.spec = TINY
    made = stand_ins(nn.ModuleDict({"0": stage, "1": stage}), order)
    tokens = torch.zeros(1, 8, dtype=torch.int64)
    hidden = made["0"](tokens)
    assert hidden.shape == (1, 8, TINY.hidden)
    assert hidden.requires_grad
    assert made["1"](hidden).shape == (1, 8, 1)


def test_blank_labels_are_of_the_one_word_that_a_stand_in_knows():
    ((tokens, labels),) = blank([(torch.ones(1, 2, dtype=torch.int64), torch.full((1, 2), 7))])
    assert tokens.tolist() == [[1, 1]]
    assert labels.tolist() == [[0, 0]]
    assert StandIn(TINY, last=True)(tokens)[0, 0, labels[0, 0]].item() == 0.0


def test_a_machine_oversleeps_by_a_time_that_is_no_less_than_nothing():
    assert 0.0 <= oversleep(sleep_s=0.001, times=3) < 5.0
