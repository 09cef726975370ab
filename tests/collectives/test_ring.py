import pytest

from playbook.collectives import collective


def test_three_ranks_reduce_scatter_by_hand():
    made = collective("reduce_scatter", "ring", 3)
    first, second = made.steps
    assert [tuple(t) for t in first] == [(0, 1, 2, True), (1, 2, 0, True), (2, 0, 1, True)]
    assert [tuple(t) for t in second] == [(0, 1, 1, True), (1, 2, 2, True), (2, 0, 0, True)]


@pytest.mark.parametrize("ranks", range(2, 9))
def test_reduce_scatter_leaves_chunk_i_complete_on_rank_i_and_no_other(ranks):
    state = collective("reduce_scatter", "ring", ranks).states[-1]
    complete = [(r, c) for r in range(ranks) for c in range(ranks) if state[r][c] == set(range(ranks))]
    assert complete == [(rank, rank) for rank in range(ranks)]


def test_all_reduce_is_reduce_scatter_and_then_all_gather():
    made = collective("all_reduce", "ring", 4)
    assert len(made.steps) == 6
    assert [made.phase_of(step) for step in range(1, 7)] == ["reduce-scatter"] * 3 + ["all-gather"] * 3
    assert made.steps[:3] == collective("reduce_scatter", "ring", 4).steps
    assert made.steps[3:] == collective("all_gather", "ring", 4).steps


def test_a_relayed_all_to_all_sends_fewer_blocks_at_every_hop():
    assert collective("all_to_all", "ring", 5).load == (4, 3, 2, 1)


def test_send_recv_passes_every_message_to_the_next_rank():
    state = collective("send_recv", "ring", 3).states[-1]
    assert [[chunk for chunk in range(3) if state[rank][chunk]] for rank in range(3)] == [
        [0, 2],
        [0, 1],
        [1, 2],
    ]
