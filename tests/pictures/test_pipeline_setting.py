import pytest

from playbook.pictures.pipeline_setting import Costs, Cut, Setting, parse_straggler


def test_costs_are_read_as_people_write_them():
    assert Costs.parse("1 : 1.2:0.8", latency=0.5) == Costs(
        forward=1.0, backward_input=1.2, backward_weight=0.8, latency=0.5
    )


@pytest.mark.parametrize("text", ["", "1:1", "1:1:1:1", "a:b:c", "0:1:1", "1:-1:1", "inf:1:1"])
def test_other_costs_are_refused_with_what_would_work(text):
    with pytest.raises(ValueError, match="such as 1:1:1"):
        Costs.parse(text)


@pytest.mark.parametrize("overlap", [0, 0.2, 0.66, 1.2])
def test_an_overlap_beyond_the_sum_or_below_the_longer_of_the_two_is_refused(overlap):
    # F = 1 beside B = 2: a pair takes at least 2 of 3.
    with pytest.raises(ValueError, match=r"max\(F, B\)/\(F \+ B\) = 0\.667, .*use 0\.67 to 1"):
        Costs(overlap=overlap)


def test_the_shortest_overlap_follows_the_costs():
    assert Costs(backward_input=0.5, backward_weight=0.5, overlap=0.5).least_overlap == 0.5
    assert Costs(overlap=2 / 3).least_overlap == 2 / 3
    with pytest.raises(ValueError, match=r"use 0\.75 to 1"):
        Costs(recompute=True, overlap=0.7)  # B is 3 with its forward made again


def test_recomputing_costs_one_more_forward():
    assert Costs(forward=2, recompute=True).backward == 1 + 1 + 2


def test_own_numbers_are_shared_out_over_more_or_fewer_stages():
    cut = Cut.parse("own", "1 1 1 2")
    assert cut.shares(4, 4) == [1, 1, 1, 2]
    assert cut.shares(8, 4) == [1, 1, 1, 1, 1, 1, 2, 2]
    assert cut.shares(2, 2) == [1, 1.5]


def test_the_head_stays_whole_in_the_last_stage():
    cut = Cut.parse("heavy head")
    # Half a rank's share: half a stage of four, a whole one of eight stages of half the length.
    assert cut.shares(4, 4)[-1] == 1.5
    assert cut.shares(8, 4)[-1] == 2


@pytest.mark.parametrize(("name", "numbers"), [("own", ""), ("own", "1 x"), ("own", "1 0"), ("round", "")])
def test_other_cuts_are_refused(name, numbers):
    with pytest.raises(ValueError, match=r"such as 1 1 1 1\.5|use one of"):
        Cut.parse(name, numbers)


@pytest.mark.parametrize("text", ["2 × 1.5", "2 x 1.5", "rank 2: 1.5", "2 1.5"])
def test_a_slow_rank_is_read_as_people_write_it(text):
    assert parse_straggler(text, 4) == (2, 1.5)


@pytest.mark.parametrize(
    ("text", "words"), [("two", "such as 2"), ("4 × 2", "no rank 4"), ("1 × 0.5", "slower")]
)
def test_other_slow_ranks_are_refused(text, words):
    with pytest.raises(ValueError, match=words):
        parse_straggler(text, 4)


def test_a_setting_says_why_no_formula_can_hold():
    assert Setting().plain
    assert Setting(costs=Costs(latency=0.1), cut=Cut(head=0.5)).unequal == "equal stages and no latency"
