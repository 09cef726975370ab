import pytest

from playbook.program.schedule import schedule
from playbook.schedules.dualpipe import PLAN, both_ways
from playbook.schedules.plan import ChunkCosts


def test_half_of_the_micro_batches_enter_at_each_end():
    assert schedule("dualpipe", 4, 8).to_csv().splitlines() == [
        "0F0,0F1,0F2,7F4,7I4,7W4,7F5,(0F3;7B5)OVERLAP_F_B,(7F6;0B0)OVERLAP_F_B,7B6,"
        "(7F7;0B1)OVERLAP_F_B,7B7,0I2,0W2,0I3,0W3",
        "1F0,6F4,1F1,6F5,1F2,6B4,(6F6;1B0)OVERLAP_F_B,(1F3;6B5)OVERLAP_F_B,"
        "(6F7;1B1)OVERLAP_F_B,6B6,1B2,6I7,1I3,6W7,1W3",
        "5F4,2F0,5F5,2F1,5F6,2B0,(2F2;5B4)OVERLAP_F_B,(5F7;2B1)OVERLAP_F_B,"
        "(2F3;5B5)OVERLAP_F_B,2B2,5B6,2I3,5I7,2W3,5W7",
        "4F4,4F5,4F6,3F0,3I0,3W0,3F1,(4F7;3B1)OVERLAP_F_B,(3F2;4B4)OVERLAP_F_B,3B2,"
        "(3F3;4B5)OVERLAP_F_B,3B3,4I6,4W6,4I7,4W7",
    ]


def test_stages_go_down_and_their_copies_up():
    assert both_ways(4) == (0, 1, 2, 3, 3, 2, 1, 0)
    made = schedule("dualpipe", 4, 8)
    assert (made.chains, made.chunks, made.depth) == (2, 1, 4)
    assert (made.first_stages, made.last_stages) == ((0, 4), (3, 7))
    assert [made.model_stage(stage) for stage in range(8)] == [0, 1, 2, 3, 0, 1, 2, 3]
    assert made.loss_ranks == (3, 0)
    assert made.placement_words == (
        "rank 0 holds stage 0 down and stage 3 up and the loss up",
        "rank 1 holds stage 1 down and stage 2 up",
        "rank 2 holds stage 2 down and stage 1 up",
        "rank 3 holds stage 3 down and the loss down and stage 0 up",
    )


@pytest.mark.parametrize(
    ("stages", "microbatches", "makespan", "idle"),
    [(4, 8, 26, 2), (4, 16, 50, 2), (8, 64, 198, 6), (2, 4, 12, 0)],
)
def test_a_pair_as_long_as_its_halves_idles_p_minus_2(stages, microbatches, makespan, idle):
    timed = schedule("dualpipe", stages, microbatches).simulate()
    assert (timed.makespan, timed.idle) == (makespan, idle)
    assert timed.peak_live == (stages + 1,) * stages


def test_one_rank_alone_never_idles():
    made = schedule("dualpipe", 1, 8)
    assert PLAN.idle(1, 8, 1, ChunkCosts(forward=1, backward_input=1, backward_weight=1)) == 0
    assert made.simulate().idle == 0


@pytest.mark.parametrize("overlap", [2.0, 2.25, 2.9])
def test_with_a_shorter_pair_the_idlest_rank_waits_as_the_report_says(overlap):
    timed = schedule("dualpipe", 8, 32).simulate(overlap=overlap)
    assert timed.makespan - min(timed.work) == pytest.approx(3 * (overlap + 2 - 3))


def test_mirrored_ranks_run_alike():
    timed = schedule("dualpipe", 8, 20).simulate(overlap=2.5)
    assert timed.work[:4] == pytest.approx(timed.work[:3:-1])


@pytest.mark.parametrize(("stages", "microbatches"), [(5, 12), (4, 9), (4, 6), (1, 1), (3, 1)])
def test_odd_and_small_sizes_have_an_order_and_a_note(stages, microbatches):
    made = schedule("dualpipe", stages, microbatches)
    assert made.note is not None
    assert sum(map(len, made.orders)) >= 2 * stages * microbatches
    assert made.simulate().makespan >= 3 * microbatches


def test_an_odd_micro_batch_goes_down():
    down = {
        action.microbatch
        for order in schedule("dualpipe", 4, 9).orders
        for action in order
        if action.stage < 4
    }
    assert down == {0, 1, 2, 3, 4}


def test_several_chunks_are_refused_and_no_framework_runs_it():
    with pytest.raises(ValueError, match="chunks=2: dualpipe gives a rank 1 chunk.*or dualpipe-v"):
        schedule("dualpipe", 4, 8, 2)
    with pytest.raises(ValueError, match="torch has no schedule dualpipe; it runs .*dualpipe-v"):
        schedule("dualpipe", 4, 8, framework="torch")
