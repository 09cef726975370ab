import pytest

from playbook.program.schedule import schedule


def test_the_order_of_a_small_pipeline():
    assert schedule("zbv", 2, 3).to_csv().splitlines() == [
        "0F0,0F1,0F2,3F0,3I0,3W0,3F1,3I1,3W1,0I0,0W0,3F2,3I2,3W2,0I1,0W1,0I2,0W2",
        "1F0,2F0,1F1,2F1,2I0,2W0,1F2,1I0,1W0,2F2,2I1,2W1,1I1,2I2,1I2,1W1,2W2,1W2",
    ]


@pytest.mark.parametrize(
    ("stages", "microbatches", "makespan"), [(4, 7, 45), (4, 8, 51), (4, 16, 99), (8, 64, 391)]
)
def test_no_rank_waits_inside_its_span_and_the_step_ends_p_minus_1_late(stages, microbatches, makespan):
    timed = schedule("zbv", stages, microbatches).simulate()
    assert (timed.makespan, timed.idle, timed.span_idle) == (makespan, stages - 1, 0)
    assert timed.peak_live == (2 * stages,) * stages


@pytest.mark.parametrize(("microbatches", "idle"), [(4, 6), (3, 8)])
def test_below_2p_minus_1_micro_batches_ranks_wait_and_a_note_says_so(microbatches, idle):
    made = schedule("zbv", 4, microbatches)
    assert made.simulate().idle == idle
    assert "less than 2 stages − 1 = 7" in (made.note or "")


@pytest.mark.parametrize(("stages", "microbatches"), [(3, 2), (4, 3), (4, 6), (5, 8), (8, 5), (8, 12)])
def test_below_2p_minus_1_micro_batches_the_interleaved_form_idles_no_more(stages, microbatches):
    loop = schedule("interleaved-zero-bubble", stages, microbatches, 2).simulate()
    assert loop.idle <= schedule("zbv", stages, microbatches).simulate().idle
    assert loop.idle < schedule("dualpipe-v", stages, microbatches).simulate().idle


def test_a_delay_of_a_tenth_per_hop_stretches_51_to_52_3():
    assert schedule("zbv", 4, 8).simulate(comm=0.1).makespan == pytest.approx(52.3)


def test_heavier_inputs_and_lighter_weights_stretch_51_to_51_6():
    timed = schedule("zbv", 4, 8).simulate(backward_input=1.2, backward_weight=0.8)
    assert timed.makespan == pytest.approx(51.6)


def test_two_chunks_are_the_default_and_all_it_takes():
    assert schedule("zbv", 4, 8).chunks == 2
    with pytest.raises(ValueError, match="chunks=3: zbv gives a rank 2 chunks.*use chunks=2"):
        schedule("zbv", 4, 8, 3)


def test_the_loss_is_on_the_first_rank():
    made = schedule("zbv", 4, 8, framework="torch")
    assert made.placement == (0, 1, 2, 3, 3, 2, 1, 0)
    assert made.loss_ranks == (0,)
    assert made.placement_words == (
        "rank 0 holds stages 0 and 7 and the loss",
        "rank 1 holds stages 1 and 6",
        "rank 2 holds stages 2 and 5",
        "rank 3 holds stages 3 and 4",
    )
