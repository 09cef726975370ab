import pytest

from playbook.collectives import algorithms, collective
from playbook.runtime.collective_run import collective_run, expected_states, own_value

EVERY = [
    (operation, name) for name, algorithm in sorted(algorithms().items()) for operation in algorithm.phases
]


def test_a_chunk_says_whose_it_is_and_which():
    assert own_value(0, 0) == 10
    assert own_value(2, 3) == 33


def test_expected_states_of_two_ranks_are_those_of_a_hand_calculation():
    # 10 11 | 20 21: rank 0 sends chunk 1, rank 1 chunk 0; then each passes its sum on
    assert expected_states(collective("all_reduce", "ring", 2)) == [
        [[10, 11], [20, 21]],
        [[30, 11], [20, 32]],
        [[30, 32], [30, 32]],
    ]


def test_what_a_rank_does_not_hold_is_none():
    assert expected_states(collective("all_gather", "ring", 2)) == [
        [[10, None], [None, 21]],
        [[10, 21], [10, 21]],
    ]


@pytest.mark.dist
@pytest.mark.timeout(120)
@pytest.mark.parametrize(("operation", "algorithm"), EVERY)
def test_real_tensors_follow_the_symbolic_steps_and_end_as_the_librarys(four, operation, algorithm):
    run = four.submit(operation, algorithm=algorithm, elements=3, sizes=()).result(60)
    made = collective(operation, algorithm, 4)
    for value in run.values:
        assert value["parity"]["ok"]
        assert value["states"] == expected_states(made)
        assert value["steps"] == len(made.steps)
    assert (
        max(value["traffic"]["payload_bytes"] for value in run.values) == run.values[0]["bytes_sent_per_rank"]
    )
    assert list(run.parity["quantity"])[-1] == "result of the library"
    assert run.parity["ok"].all()


@pytest.mark.dist
@pytest.mark.timeout(120)
def test_a_ring_all_reduce_of_four_ranks_by_hand(four):
    value = four.submit("all-reduce", sizes=()).result(60).values[0]
    assert value["states"][0][0] == [10, 11, 12, 13]
    # 10 + 20 + 30 + 40 = 100, and four times the chunk's number
    assert value["states"][-1] == [[100, 104, 108, 112]] * 4
    assert value["library"] == [[100, 104, 108, 112]] * 4
    # 6 steps of one chunk of one 8-byte number
    assert value["traffic"] == {"payload_bytes": 48, "wire_bytes": 48.0, "calls": {"send": 6}}


@pytest.mark.dist
@pytest.mark.timeout(120)
def test_every_rank_streams_what_it_holds_after_each_step(four):
    job = four.submit("reduce_scatter", sizes=())
    job.result(60)
    steps = [event for event in job.events if event["kind"] == "step"]
    assert sorted((event["rank"], event["step"]) for event in steps) == [
        (rank, step) for rank in range(4) for step in range(4)
    ]
    assert [event["values"] for event in steps if (event["rank"], event["step"]) == (0, 0)] == [
        [10, 11, 12, 13]
    ]


@pytest.mark.dist
@pytest.mark.timeout(120)
def test_sizes_are_timed_by_hand_and_by_library(pool):
    value = pool.submit("all_reduce", sizes=(4_096, 65_536), repeats=3).result(60).values[0]
    assert [(row["bytes"], row["by"]) for row in value["times"]] == [
        (4_096, "hand"),
        (4_096, "library"),
        (65_536, "hand"),
        (65_536, "library"),
    ]
    for row in value["times"]:
        assert 0 < row["seconds"] <= row["median_s"]
        assert row["algbw"] == row["bytes"] / row["seconds"]
        assert row["busbw"] == row["algbw"]  # 2 (n - 1) / n = 1 for two ranks


def test_one_rank_has_nothing_to_do():
    made = collective_run("all_gather", 1).collective
    assert made.steps == ()


@pytest.mark.parametrize(
    ("levers", "text"),
    [
        ({"algorithm": "pigeon"}, "pigeon"),
        ({"elements": 0}, "elements=0 must be at least 1"),
        ({"sizes": (0,)}, "sizes=0 must be at least 1"),
        ({"repeats": 0}, "repeats=0 must be at least 1"),
        ({"pause_s": -1.0}, "pause_s=-1.0"),
        ({"colour": 1}, "no lever 'colour'; levers are algorithm, elements"),
    ],
)
def test_levers_are_checked_before_any_rank_is_asked(levers, text):
    with pytest.raises(ValueError, match=text):
        collective_run("all_reduce", 4, **levers)
