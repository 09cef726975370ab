"""Cuts against every cut there is."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from playbook.planner.cut_costs import CutCosts, most_alive
from playbook.planner.descent import descend
from playbook.planner.least_cut import equal_cut, least_cut, smallest_cut
from playbook.predict.layer_costs import LayerCost
from playbook.program.schedule import schedule


def layer(name, seconds, state=0, kept=0):
    return LayerCost(
        name=name,
        forward_s=seconds / 4,
        backward_input_s=seconds / 4,
        backward_weight_s=seconds / 2,
        state_bytes=state,
        activation_bytes=kept,
    )


def every_cut(layers, stages):
    for borders in combinations(range(1, layers), stages - 1):
        yield tuple(np.diff((0, *borders, layers)).tolist())


ORDERS = [
    ("1f1b", 1, 1),
    ("1f1b", 3, 1),
    ("gpipe", 2, 1),
    ("interleaved-1f1b", 2, 2),
    ("interleaved-1f1b", 3, 2),
    ("zbv", 2, 2),
    ("dualpipe-v", 2, 2),
    ("zbv", 3, 2),
    ("dualpipe", 2, 1),
    ("dualpipe", 4, 1),
]


@settings(max_examples=50, deadline=None)
@given(order=st.sampled_from(ORDERS), data=st.data())
def test_the_slowest_rank_is_the_fastest_of_all_cuts_under_the_cap(order, data):
    name, stages, chunks = order
    made = schedule(name, stages, 8, chunks)
    count = data.draw(st.integers(made.depth, made.depth + 4))
    costs = [
        layer(f"layers.{n}", *data.draw(st.tuples(st.floats(0.1, 4), st.integers(0, 9), st.integers(0, 3))))
        for n in range(count)
    ]
    ends = [
        layer("embedding", data.draw(st.floats(0, 2)), 5),
        layer("head", data.draw(st.floats(0, 5)), 8, 2),
    ]
    cut_costs = CutCosts.of(made, [ends[0], *costs, ends[1]], count)
    cuts = list(every_cut(count, made.depth))
    cap = data.draw(st.sampled_from([None, *(float(cut_costs.rank_bytes(cut).max()) for cut in cuts[::3])]))
    fitting = [cut for cut in cuts if cap is None or cut_costs.rank_bytes(cut).max() <= cap]
    best = min(float(cut_costs.rank_seconds(cut).max()) for cut in fitting)
    found, proven = least_cut(cut_costs, cap)
    assert proven
    assert sum(found) == count
    assert found in fitting
    assert float(cut_costs.rank_seconds(found).max()) == pytest.approx(best, rel=1e-6)


@settings(max_examples=25, deadline=None)
@given(order=st.sampled_from(ORDERS[1:]), data=st.data())
def test_a_cap_below_the_least_there_is_leaves_no_cut(order, data):
    name, stages, chunks = order
    made = schedule(name, stages, 8, chunks)
    count = made.depth + 2
    costs = [layer(f"layers.{n}", 1, data.draw(st.integers(1, 9)), 1) for n in range(count)]
    cut_costs = CutCosts.of(made, costs, count)
    least = min(float(cut_costs.rank_bytes(cut).max()) for cut in every_cut(count, made.depth))
    assert least_cut(cut_costs, least - 0.5)[0] is None
    assert least_cut(cut_costs, least)[0] is not None
    assert float(cut_costs.rank_bytes(smallest_cut(cut_costs)).max()) == pytest.approx(least, rel=1e-6)


def test_with_one_stage_a_rank_equal_seconds_are_shared_evenly():
    made = schedule("1f1b", 4, 8)
    found, _ = least_cut(CutCosts.of(made, [layer(f"layers.{n}", 1) for n in range(10)], 10), None)
    assert sorted(found) == [2, 2, 3, 3]


def test_with_two_stages_a_rank_no_stage_is_longer_than_it_need_be():
    made = schedule("interleaved-1f1b", 2, 4, 2)
    found, _ = least_cut(CutCosts.of(made, [layer(f"layers.{n}", 1) for n in range(8)], 8), None)
    assert found == (2, 2, 2, 2)


def test_what_is_alive_on_a_rank_is_counted_by_slot():
    assert most_alive(schedule("1f1b", 4, 8), 1).tolist() == [[3]]
    # GPipe with two chunks: all eight of each.
    assert most_alive(schedule("looped-bfs", 2, 8, 2), 0).tolist() == [[8, 8]]
    # Interleaved, p = 2, m = 4: rank 0 leads with (v − 1) p + 2 (p − 1) + 1 = 5 chunks.
    assert max(sum(row) for row in most_alive(schedule("interleaved-1f1b", 2, 4, 2), 0).tolist()) == 5


def test_descending_moves_one_layer_at_a_time_to_where_it_helps():
    assert descend((4, 1, 1), lambda cut: (max(cut),)) == (2, 2, 2)


def test_three_chunks_a_rank_are_never_slower_than_the_equal_cut():
    made = schedule("interleaved-1f1b", 2, 4, 3)
    costs = [*(layer(f"layers.{n}", 1) for n in range(12)), layer("head", 4)]
    cut_costs = CutCosts.of(made, costs, 12)
    found, proven = least_cut(cut_costs, None)
    assert not proven
    # Rank 1 has the head: 12 + 4 over two ranks is 8 each, so 8 layers and 4.
    assert cut_costs.rank_seconds(found).tolist() == [8, 8]
    assert cut_costs.rank_seconds(equal_cut(12, 6)).tolist() == [6, 10]


def test_a_list_of_other_length_is_refused_so_that_no_layer_is_lost():
    with pytest.raises(
        ValueError, match="layer_costs has 3 layers beside its ends but the model has 4; give 4"
    ):
        CutCosts.of(schedule("1f1b", 2, 4), [layer(f"layers.{n}", 1) for n in range(3)], 4)
