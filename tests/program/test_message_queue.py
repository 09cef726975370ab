import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from playbook.program.schedule import schedule
from playbook.program.simulate import simulate
from playbook.schedules import Action
from tests.program.plain_simulator import random_orders


def orders(text):
    return [[Action.parse(cell) for cell in row.split()] for row in text.split("/")]


WARM_UP = orders("0F0 0F1 3F0 3F1 / 1F0 1F1 4F0 4F1 / 2F0 2F1 5F0 5F1")
LOOP = [0, 1, 2, 0, 1, 2]


def starts(timed):
    return dict(zip(timed.labels, timed.start.tolist(), strict=True))


def test_an_early_receive_keeps_the_ready_send_behind_it():
    """0F1 ends at 2, but the receive of 3F0 stands before its send and 2F0 ends only at 5: it goes at 6."""
    free = starts(simulate(WARM_UP, LOOP, comm=1))
    queued = simulate(WARM_UP, LOOP, comm=1, queue=True)
    assert free["1F1"] == 3
    assert starts(queued)["1F1"] == 7
    sent = queued.messages.sender.tolist().index(queued.labels.index("0F1"))
    assert queued.messages.departure[sent] == 6


def test_a_deferred_receive_lets_the_ready_send_go_first():
    timed = starts(simulate(WARM_UP, LOOP, comm=1, queue=True, receive="deferred"))
    assert timed["1F1"] == 4


def test_deferring_receives_shortens_the_warm_up_of_interleaved_1f1b_in_one_queue():
    """The symptom of pytorch #188833 at its size, p = 8 and v = 2."""
    made = schedule("interleaved-1f1b", 8, 32, 2)
    early = made.simulate(comm=0.1, queue=True).makespan
    deferred = made.simulate(comm=0.1, queue=True, receive="deferred").makespan
    assert made.simulate(comm=0.1).makespan < deferred < 0.9 * early


def messages_by_torch(order, placement):
    """Per rank, what it sends and receives in torch's lowered order: (kind, sending stage, micro-batch)."""
    from torch.distributed.pipelining import schedules

    microbatches = 1 + max(action.microbatch for actions in order for action in actions)
    compute = {}
    for rank, actions in enumerate(order):
        read = [schedules._Action.from_str(str(action)) for action in actions]
        compute[rank] = schedules._add_reduce_grad(schedules._add_unshard_reshard(read), microbatches)
    lowered = schedules._add_send_recv(compute, lambda stage: placement[stage], len(placement))
    found = {}
    for rank, actions in lowered.items():
        rows = [(a.computation_type.name, a.stage_index, a.microbatch_index) for a in actions]
        back = {"SEND_F": 0, "SEND_B": 0, "RECV_F": 1, "RECV_B": -1}
        found[rank] = [(kind[-1], stage - back[kind], mb) for kind, stage, mb in rows if kind in back]
    return found


@pytest.mark.parametrize(
    ("name", "stages", "microbatches", "chunks"),
    [
        ("gpipe", 4, 8, 1),
        ("1f1b", 4, 8, 1),
        ("interleaved-1f1b", 4, 8, 2),
        ("interleaved-1f1b", 4, 16, 4),
        ("looped-bfs", 4, 6, 3),
        ("zb-h1", 4, 8, 1),
        ("interleaved-zero-bubble", 4, 8, 5),
        ("zbv", 4, 8, 2),
    ],
)
def test_messages_stand_where_torch_puts_them(name, stages, microbatches, chunks):
    made = schedule(name, stages, microbatches, chunks)
    timed = made.simulate(comm=1, queue=True)
    by = np.argsort(timed.messages.departure, kind="stable")
    found = {rank: [] for rank in range(4)}
    for message in by.tolist():
        sender, receiver = timed.messages.sender[message], timed.messages.receiver[message]
        what = ("F" if timed.kind[sender] == 0 else "B", timed.stage[sender], timed.microbatch[sender])
        found[timed.rank[sender]].append(what)
        found[timed.rank[receiver]].append(what)
    assert found == messages_by_torch(made.orders, made.placement)


def test_an_order_that_deadlocks_without_a_queue_is_named_with_its_cycle():
    with pytest.raises(ValueError, match="deadlock: rank 0 stops at 0B0, which waits for 1B0 on rank 1"):
        simulate(orders("0F0 0B0 0F1 0B1 / 1F1 1B1 1F0 1B0"), [0, 1], comm=1, queue=True)


@settings(max_examples=40, deadline=None)
@given(case=random_orders(), comm=st.integers(1, 4), receive=st.sampled_from(["early", "deferred"]))
def test_a_queue_carries_one_message_at_a_time_and_only_delays(case, comm, receive):
    made, placement = case
    timed = simulate(made, placement, comm=comm, queue=True, receive=receive)
    free = simulate(made, placement, comm=comm, receive=receive)
    assert (timed.start >= free.start).all()
    sent = timed.messages
    assert (sent.departure >= timed.end[sent.sender]).all()
    assert (timed.start[sent.receiver] >= sent.arrival).all()
    for rank in range(timed.ranks):
        mine = (timed.rank[sent.sender] == rank) | (timed.rank[sent.receiver] == rank)
        departures = np.sort(sent.departure[mine])
        assert (np.diff(departures) >= comm).all()


@settings(max_examples=20, deadline=None)
@given(case=random_orders(), receive=st.sampled_from(["early", "deferred"]))
def test_costs_of_zero_deadlock_no_queue(case, receive):
    made, placement = case
    costs = dict.fromkeys(("forward", "backward_input", "backward_weight"), 0)
    assert simulate(made, placement, **costs, queue=True, receive=receive).makespan == 0
