from playbook.collectives import collective


def test_all_reduce_sends_the_whole_buffer_to_every_other_rank_in_one_step():
    made = collective("all_reduce", "direct", 4)
    assert len(made.steps) == 1
    assert made.bytes_sent_per_rank(1 << 20) == 3 << 20


def test_reduce_scatter_and_all_gather_send_each_chunk_once():
    for op in ("reduce_scatter", "all_gather"):
        made = collective(op, "direct", 4)
        assert len(made.steps) == 1
        assert made.bytes_sent_per_rank(1 << 20) == 786_432


def test_all_to_all_exchanges_with_one_rank_a_step():
    made = collective("all_to_all", "direct", 4)
    assert len(made.steps) == 3
    assert [(t.src, t.dst, t.chunk) for t in made.steps[0]] == [(0, 1, 1), (1, 2, 6), (2, 3, 11), (3, 0, 12)]
    assert made.bytes_sent_per_rank(1 << 20) == 786_432


def test_send_recv_is_one_message_from_rank_0_to_rank_1():
    made = collective("send_recv", "direct", 4)
    assert [(t.src, t.dst) for t in made.steps[0]] == [(0, 1)]
    assert made.bytes_sent_per_rank(1000) == 1000
