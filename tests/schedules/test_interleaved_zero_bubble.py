import pytest

from playbook.program.schedule import schedule


def test_the_order_of_a_small_pipeline():
    assert schedule("interleaved-zero-bubble", 2, 2, 2).to_csv().splitlines() == [
        "0F0,0F1,2F0,2F1,2I0,2W0,2I1,2W1,0I0,0W0,0I1,0W1",
        "1F0,1F1,3F0,3I0,3F1,3I1,3W0,1I0,3W1,1I1,1W0,1W1",
    ]


@pytest.mark.parametrize(
    ("stages", "microbatches", "makespan", "idle"),
    [(4, 8, 51, 3), (4, 16, 99, 3), (8, 64, 391, 7), (4, 4, 27, 3), (4, 3, 23, 5)],
)
def test_two_chunks_idle_a_third_of_interleaved_1f1b(stages, microbatches, makespan, idle):
    timed = schedule("interleaved-zero-bubble", stages, microbatches, 2).simulate()
    assert (timed.makespan, timed.idle) == (makespan, idle)


@pytest.mark.parametrize(("stages", "microbatches"), [(4, 8), (8, 64)])
def test_every_rank_holds_p_micro_batches_on_all_its_chunks(stages, microbatches):
    timed = schedule("interleaved-zero-bubble", stages, microbatches, 2).simulate()
    assert timed.peak_live == (2 * stages,) * stages


def test_heavier_inputs_and_lighter_weights_stretch_51_to_52_2():
    timed = schedule("interleaved-zero-bubble", 4, 8, 2).simulate(backward_input=1.2, backward_weight=0.8)
    assert timed.makespan == pytest.approx(52.2)


def test_one_chunk_is_zb_h1():
    made = schedule("interleaved-zero-bubble", 4, 7, 1)
    assert made.orders == schedule("zb-h1", 4, 7).orders
    assert made.note == "chunks=1: the same order as zb-h1; give chunks=2 or more to interleave"


def test_uneven_rounds_have_an_order_that_torch_refuses():
    assert "no multiple of stages=4" in (schedule("interleaved-zero-bubble", 4, 9, 2).note or "")
    with pytest.raises(ValueError, match="torch runs 2 rounds.*use microbatches=8 or 10"):
        schedule("interleaved-zero-bubble", 4, 9, 2, framework="torchtitan")


def test_megatron_has_no_split_backward():
    with pytest.raises(ValueError, match="megatron has no schedule interleaved-zero-bubble; it runs 1f1b"):
        schedule("interleaved-zero-bubble", 4, 8, 2, framework="megatron")
