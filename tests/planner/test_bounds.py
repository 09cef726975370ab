"""The bound and the search against every order there is, timed by the event engine."""

from itertools import permutations, product

import numpy as np
import pytest

from playbook.planner import find_schedule
from playbook.planner.bounds import lower_bound
from playbook.program.schedule import schedule
from playbook.program.simulate import simulate
from playbook.schedules.packed import F, I, W, pack

KINDS = (F, I, W)


def orders_in_turn(stage, microbatches):
    """Every order of one rank whose F, I and W each take the micro-batches in turn."""

    def words(done):
        if done == (microbatches,) * 3:
            yield []
        for kind in range(3):
            if done[kind] < (microbatches if kind == 0 else done[kind - 1]):
                after = tuple(count + (place == kind) for place, count in enumerate(done))
                yield from ([(kind, done[kind]), *rest] for rest in words(after))

    return [pack_all(stage, word) for word in words((0, 0, 0))]


def orders_of_all_kinds(stage, microbatches):
    """Every order of one rank that runs I after F and W after I of each micro-batch."""
    tasks = list(product(range(3), range(microbatches)))
    return [
        pack_all(stage, order)
        for order in permutations(tasks)
        if all(order.index((k, mb)) < order.index((k + 1, mb)) for k in (0, 1) for mb in range(microbatches))
    ]


def pack_all(stage, word):
    return np.array([int(pack(stage, KINDS[kind], mb)) for kind, mb in word], dtype=np.int64)


def optimum(orders, cap, **costs):
    """Least makespan of all pairs of orders of two ranks under a cap."""
    best = float("inf")
    for pair in product(*orders):
        try:
            timed = simulate(pair, (0, 1), **costs)
        except ValueError:  # they lock each other
            continue
        if cap is None or max(timed.peak_live) <= cap:
            best = min(best, timed.makespan)
    return best


UNEVEN = {"forward": [1, 2], "backward_input": [1.5, 1], "backward_weight": [0.5, 1.5], "comm": 0.25}
PLAIN = {"forward": 1, "backward_input": 1, "backward_weight": 1, "comm": 0}


@pytest.mark.parametrize("costs", [PLAIN, UNEVEN, {**UNEVEN, "forward": [2, 0.5], "comm": 1}])
@pytest.mark.parametrize("cap", [1, 2])
def test_two_micro_batches_on_two_ranks_every_order(costs, cap):
    best = optimum([orders_of_all_kinds(stage, 2) for stage in range(2)], cap, **costs)
    in_turn = optimum([orders_in_turn(stage, 2) for stage in range(2)], cap, **costs)
    found = find_schedule(2, 2, memory_cap=cap, copies=1, **costs)
    assert in_turn == best  # nothing is lost by taking micro-batches in turn
    assert found.lower_bound <= best + 1e-9
    assert found.makespan == pytest.approx(best)


@pytest.mark.parametrize(("costs", "cap"), [(PLAIN, None), (UNEVEN, 2), (UNEVEN, 1)])
def test_three_micro_batches_on_two_ranks_every_order_in_turn(costs, cap):
    best = optimum([orders_in_turn(stage, 3) for stage in range(2)], cap, **costs)
    found = find_schedule(2, 3, memory_cap=cap, copies=1, **costs)
    assert found.lower_bound <= best + 1e-9
    assert found.makespan == pytest.approx(best)


def test_equal_stages_and_no_cap_cost_the_way_to_the_last_rank_and_its_work(place):
    loop, *_ = place(stages=4, microbatches=8)
    # Three forwards until rank 3 starts, then 8 (F + I + W).
    assert lower_bound(loop) == 27


def test_one_chunk_alive_makes_micro_batches_pass_one_after_the_other(place):
    loop, *_ = place(stages=3, microbatches=4, comm=0.5, memory_cap=1)
    # Down 3 F and 2 hops, up 3 I and 2 hops, then W of rank 0: 9, four times.
    assert lower_bound(loop) == 36


def test_the_lives_of_capped_chunks_bound_two_chunks_too(place):
    for placed in place(stages=2, microbatches=6, chunks=2, memory_cap=2):
        # Rank 0 holds slots 0 and 2 (loop, lives 9 and 5) or 0 and 3 (V, lives 9 and 3), two at a time.
        lives = 9 + (5 if placed.word == "loop" else 3)
        assert lower_bound(placed) >= 6 * lives / 2


def test_a_fused_backward_that_is_cheaper_lowers_the_bound(place):
    loop, *_ = place(stages=1, microbatches=3, backward=1.5)
    assert lower_bound(loop) == 3 * 2.5


def test_a_backward_that_must_stay_whole_raises_it(place):
    loop, *_ = place(stages=2, microbatches=3, split=False)
    # GPipe and 1F1B both take 3 (1 + 2) + 1 (1 + 2), and that is the least: rank 0 waits for its last B.
    assert lower_bound(loop) == schedule("1f1b", 2, 3).simulate().makespan == 12


def test_no_schedule_of_the_folder_beats_the_bound(place):
    costs = {"forward": [1, 2, 1, 0.5], "backward_input": [0.1, 1, 1.5, 1], "backward_weight": 1}
    for name, chunks in (("1f1b", 1), ("gpipe", 1), ("zb-h1", 1), ("zb-h2", 1), ("dualpipe", 1), ("zbv", 2)):
        stages = 4 // chunks
        made = schedule(name, stages, 8, chunks)
        every = place(stages=stages, microbatches=8, chunks=chunks, comm=0.25, **costs)
        placed = next(one for one in every if one.placement == made.placement and one.chains == made.chains)
        assert lower_bound(placed) <= made.simulate(comm=0.25, **costs).makespan + 1e-9
