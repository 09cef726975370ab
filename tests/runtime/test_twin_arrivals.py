import pytest
import torch

import playbook as pb
from playbook.runtime.twin_arrivals import Arrivals, arrivals_of, letters_of


def test_a_receive_lasts_until_its_message_is_due():
    now = [10.0]
    arrivals = Arrivals(lambda: now[0])
    arrivals.due_s = {(1, 2, True): 3.0, (1, 2, False): 5.0}
    arrivals.begin()
    now[0] = 11.0
    there, back = torch.zeros(1), torch.zeros(1)
    with arrivals.during("receive", "m1/F/stage2", there), arrivals.during("receive", "m1/I/stage2", back):
        pass
    assert arrivals.wait_s(there) == 2.0
    assert arrivals.wait_s(back) == 4.0
    assert arrivals.wait_s(torch.zeros(1)) == 0.0


def test_a_message_that_is_late_in_coming_is_taken_at_once():
    now = [0.0]
    arrivals = Arrivals(lambda: now[0])
    arrivals.due_s = {(0, 1, True): 1.0}
    arrivals.begin()
    now[0] = 4.0
    with arrivals.during("receive", "m0/F/stage1", room := torch.zeros(1)):
        pass
    assert arrivals.wait_s(room) == 0.0


def test_messages_arrive_when_the_schedule_says():
    # 1F1B, 2 ranks, 2 micro-batches, F 1, B 2, delay 0.5. Rank 1: F0 arrives at 1.5, runs to 2.5, B0 to 4.5;
    # rank 0's F1 ends at 2, arrives at 2.5. Rank 1: F1 4.5 to 5.5, B1 to 7.5. Rank 0 gets B0 at 5, B1 at 8.
    timed = pb.schedule("1f1b", 2, 2).simulate(forward=1.0, backward=2.0, comm=0.5)
    assert letters_of(timed, 1, 2.0) == {(0, 1, True): 3.0, (1, 1, True): 5.0}
    assert letters_of(timed, 0, 1.0) == {(0, 0, False): 5.0, (1, 0, False): 8.0}


def test_the_last_stage_waits_for_the_others_forwards():
    workload = pb.Workload(sequence=128, recipe="bf16", global_batch=4)
    s = pb.Scenario(pb.model("toy-15m"), workload, pb.Layout(pp=3), framework="torch")
    due = arrivals_of(s, 2, 1.0)
    assert sorted(due) == [(microbatch, 2, True) for microbatch in range(4)]
    assert 0 < due[0, 2, True] < due[3, 2, True]
    assert arrivals_of(s, 2, 2.0)[0, 2, True] == pytest.approx(2 * due[0, 2, True])
