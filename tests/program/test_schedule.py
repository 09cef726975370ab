import pytest

from playbook.program.schedule import schedule, schedule_from_orders
from playbook.schedules import Action
from playbook.schedules.registry import find_plan


def test_an_order_written_as_csv_reads_back(tmp_path):
    path = tmp_path / "order.csv"
    made = schedule("interleaved-1f1b", 4, 8, 2)
    made.to_csv(path)
    again = schedule(path)
    assert again.orders == made.orders
    assert again.placement == made.placement
    assert (again.stages, again.microbatches, again.chunks) == (4, 8, 2)
    assert again.warmup == made.warmup


def test_a_csv_may_hold_split_backwards_and_empty_cells(tmp_path):
    path = tmp_path / "split.csv"
    path.write_text("0F0,,,0I0,0W0\n,1F0,1I0,1W0\n")
    made = schedule(str(path))
    assert made.orders[0] == (Action(0, "F", 0), Action(0, "I", 0), Action(0, "W", 0))
    assert made.simulate().makespan == 5


def test_one_ranks_order_is_that_of_all_orders():
    made = schedule("1f1b", 3, 4)
    assert tuple(made.order(rank) for rank in range(3)) == made.orders
    with pytest.raises(ValueError, match="rank 3 of 3; use 0 to 2"):
        made.order(3)


def test_sizes_given_beside_a_csv_must_agree(tmp_path):
    path = tmp_path / "order.csv"
    schedule("1f1b", 2, 4).to_csv(path)
    with pytest.raises(ValueError, match="microbatches=8 but .* has 4"):
        schedule(path, microbatches=8)


def test_a_bad_cell_is_named_with_its_place(tmp_path):
    path = tmp_path / "order.csv"
    path.write_text("0F0,0B0\n1F0,oops\n")
    with pytest.raises(ValueError, match="row 2, column 2: 'oops'"):
        schedule(path)


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("(0F1;1B0)", "row 1, column 2: .* is no overlapped pair; write it as in .0F1;7B0.OVERLAP_F_B"),
        (
            "(0B1;1F0)OVERLAP_F_B",
            "row 1, column 2: .* overlaps B and F; a pair is a forward, then a backward",
        ),
        ("(0F1;oops)OVERLAP_F_B", "row 1, column 2: 'oops' is not a pipeline action"),
        ("0SEND_F1", "row 1, column 2: 0SEND_F1 is no computation; leave messages"),
    ],
)
def test_a_bad_pair_or_a_message_is_named_with_its_place(tmp_path, cell, message):
    path = tmp_path / "order.csv"
    path.write_text(f"0F0,{cell}\n")
    with pytest.raises(ValueError, match=message):
        schedule(path)


def test_a_csv_whose_micro_batches_never_cross_is_read_as_two_directions(tmp_path):
    path = tmp_path / "both.csv"
    schedule("dualpipe", 4, 8).to_csv(path)
    made = schedule(path)
    assert (made.chains, made.chunks, made.depth, made.loss_ranks) == (2, 1, 4, (3, 0))
    assert "two directions: stage 4 is a second copy of stage 0" in (made.note or "")
    assert made.simulate().makespan == 26


def test_two_ranks_that_never_talk_are_two_directions_of_one_stage():
    made = schedule_from_orders(_orders("0F0 0B0 / 1F1 1B1"))
    assert (made.chains, made.chunks, made.depth) == (2, 1, 1)


def test_a_pair_has_to_be_a_forward_and_then_a_backward():
    order = [[Action(0, "F", 0), Action(0, "B", 0), Action(0, "F", 1, beside=True), Action(0, "B", 1)]]
    with pytest.raises(ValueError, match="rank 0 runs 0F1 beside 0B0; a pair is a forward, then a backward"):
        schedule_from_orders(order)
    with pytest.raises(ValueError, match="beside nothing"):
        schedule_from_orders([[Action(0, "B", 0, beside=True), Action(0, "F", 0)]])


def test_a_v_has_the_loss_on_the_first_rank_and_a_loop_on_the_last():
    assert schedule("zbv", 4, 8).loss_ranks == (0,)
    assert schedule("interleaved-1f1b", 4, 8, 2).loss_ranks == (3,)
    assert schedule("1f1b", 2, 2).placement_words == (
        "rank 0 holds stage 0",
        "rank 1 holds stage 1 and the loss",
    )


def test_it_is_told_in_one_line():
    """A zero-bubble schedule runs F, I and W of every micro-batch on 8 stages."""
    words = "Schedule(zbv: 4 ranks × 2 chunks, 16 micro-batches, 384 actions)"
    assert repr(schedule("zbv", 4, 16)) == words
    assert repr(schedule("gpipe", 1, 1)) == "Schedule(gpipe: 1 rank × 1 chunk, 1 micro-batch, 2 actions)"
    assert "2 ranks × 1 chunk in 2 directions, 4 micro-batches" in repr(schedule("dualpipe", 2, 4))


def test_a_file_that_is_no_text_is_named_with_the_rule(tmp_path):
    path = tmp_path / "order.csv"
    path.write_bytes(b"\xff\xfe\x00\x81")
    with pytest.raises(
        ValueError, match="order.csv: this is no text in UTF-8; give a CSV with one row a rank"
    ):
        schedule(path)


def test_a_remark_is_part_of_the_note_and_leaves_the_formula_alone():
    made = schedule("looped-bfs", 4, 2)
    assert find_plan("looped-bfs").note(4, 2, 1) is None
    assert "give chunks=2 or more to interleave" in (made.note or "")
    assert "chunks=1" not in (schedule("looped-bfs", 4, 2, 2).note or "")
    assert schedule("1f1b", 4, 8).note is None


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ValueError, match="nowhere.csv: there is no such file"):
        schedule(tmp_path / "nowhere.csv")


def _orders(text):
    return [[Action.parse(cell) for cell in row.split()] for row in text.split("/")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0F0 0B0 / 1F0", "rank 1 never runs 1B0"),
        ("0F0 0F0 0B0 / 1F0 1B0", "rank 0 runs 0F0 2 times"),
        ("0F0 0B0 0W0 / 1F0 1B0", "fused .B. or split"),
        ("0F0 0B0 / 1B0 1F0", "rank 1 runs 1B0 before 1F0"),
        ("0F0 0B0 / 0F0 0B0", "stage 0 is run by ranks 0 and 1"),
        ("0F0 0B0 / 2F0 2B0", "stage 1 is run by no rank"),
        ("0F0 0F1 0B0 0B1 / 1F1 1B1", "rank 1 never runs 1F0"),
        ("0F0 0I0 / 1F0 1B0", "rank 0 never runs 0W0"),
    ],
)
def test_an_order_that_is_not_whole_is_refused_with_the_rank_and_the_action(text, message):
    with pytest.raises(ValueError, match=message):
        schedule_from_orders(_orders(text))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"stages": 0, "microbatches": 4}, "stages=0; use 1 or more"),
        ({"stages": 4, "microbatches": -1}, "microbatches=-1; use 1 or more"),
        ({"stages": 4}, "microbatches is missing"),
        ({"stages": 4, "microbatches": 4, "framework": "jax"}, "'jax'.*textbook, torch"),
    ],
)
def test_a_size_that_has_no_order_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        schedule("1f1b", **arguments)


def test_a_size_that_is_no_whole_number_is_a_type_error():
    with pytest.raises(TypeError, match="stages=2.5"):
        schedule("1f1b", 2.5, 4)


def test_one_rank_and_one_micro_batch_never_idle():
    for name in ("gpipe", "1f1b", "interleaved-1f1b"):
        timed = schedule(name, 1, 1).simulate()
        assert (timed.makespan, timed.idle, timed.span_idle, timed.peak_live) == (3, 0, 0, (1,))
