import numpy as np

from playbook.program.schedule import schedule
from playbook.schedules.packed import pack_order


def test_placements_are_those_that_schedules_of_the_folder_use(place):
    assert [(one.word, one.placement) for one in place(stages=3, microbatches=1)] == [("loop", (0, 1, 2))]
    assert [(one.word, one.placement) for one in place(stages=3, chunks=2)] == [
        ("loop", (0, 1, 2, 0, 1, 2)),
        ("V", (0, 1, 2, 2, 1, 0)),
    ]
    _, both = place(stages=3, microbatches=5)
    assert (both.word, both.placement, both.chains) == ("bidirectional", (0, 1, 2, 2, 1, 0), 2)
    assert both.counts == [3, 3, 3, 2, 2, 2]


def test_an_order_comes_back_from_its_tasks(place):
    for name, chunks in (("1f1b", 1), ("zb-h1", 1), ("interleaved-1f1b", 2)):
        made = schedule(name, 3, 6, chunks)
        loop = place(stages=3, microbatches=6, chunks=chunks)[0]
        again = loop.schedule(loop.tasks(made.packed, split=False))
        assert again.to_csv() == made.to_csv()
        assert again.placement == made.placement


def test_a_fused_backward_is_split_where_it_stood(place):
    loop, *_ = place(stages=1)
    order = pack_order([(0, "F", 0), (0, "B", 0), (0, "F", 1), (0, "B", 1)])
    assert loop.schedule(loop.tasks([order], split=True)).to_csv() == "0F0,0I0,0W0,0F1,0I1,0W1\n"


def test_micro_batches_out_of_turn_are_renumbered(place):
    loop, *_ = place(stages=1)
    order = pack_order([(0, "F", 1), (0, "I", 1), (0, "F", 0), (0, "W", 1), (0, "I", 0), (0, "W", 0)])
    made = loop.schedule(loop.tasks([order], split=False))
    assert made.to_csv() == "0F0,0I0,0F1,0W0,0I1,0W1\n"


def test_a_message_costs_nothing_between_stages_of_one_rank(place):
    _, v = place(stages=2, chunks=2, comm=0.5)
    forward = [v.delay[(slot * 4) * v.trips] for slot in range(4)]
    assert forward == [0, 0.5, 0, 0.5]
    assert np.array(v.needs).max() < len(v.duration)
