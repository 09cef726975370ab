import pytest

from widgets import CollectiveExplorer

pytestmark = pytest.mark.timeout(120)


def test_the_first_step_shown_is_the_last_of_the_reduce_scatter():
    explorer = CollectiveExplorer()
    assert explorer.picture["step"] == 3
    assert explorer.headline == (
        "After step 3 every rank owns one finished chunk: half the bytes sent, "
        "no rank holds the whole sum yet."
    )
    assert explorer.picture["sent"] == "768 of 1\u2009536 KiB sent per rank"


def test_a_step_moves_the_contributors_on():
    explorer = CollectiveExplorer(step=1)
    grid = explorer.picture["grid"]
    # Rank 1 adds chunk 0 - 1 = 3 of rank 0 to its own: bits 0 and 1.
    src, dst, chunk = next(move for move in grid["moves"] if move[1] == 1)
    place = dst * grid["chunks"] + chunk
    assert (src, grid["before"][place], grid["after"][place]) == (0, 0b10, 0b11)


def test_a_step_beyond_the_last_is_the_last():
    explorer = CollectiveExplorer(step=99)
    assert explorer.picture["step"] == 6
    assert "holds the whole sum, having sent 1.5 times its buffer" in explorer.headline


def test_algorithms_are_those_that_can_do_the_operation():
    explorer = CollectiveExplorer()
    assert next(one for one in explorer.controls if one["name"] == "algorithm")["options"] == [
        ["direct", "direct"],
        ["ring", "ring"],
    ]


def test_a_fit_is_refused_before_anything_was_timed():
    explorer = CollectiveExplorer()
    explorer.cost_from = "fit"
    assert explorer.refusal["control"] == "cost_from"
    assert "press Run" in explorer.refusal["text"]


@pytest.mark.dist
def test_real_tensors_fill_the_cells_step_by_step():
    explorer = CollectiveExplorer(ranks=2, size_bytes=4096)
    explorer.run()
    explorer.wait(90)
    assert explorer.status["state"] == "done"
    # Own values are 10 (rank + 1) + chunk; after step 1 each rank holds one sum: 10 + 20 + 2 · chunk.
    assert explorer.measured["values"] == ["30", "11", "20", "32"]
    explorer.step = 2
    assert explorer.measured["values"] == ["30", "32", "30", "32"]
    rows = {row["label"]: row for row in explorer.picture["table"]["rows"]}
    assert rows["bytes sent per rank"]["difference"] == "0 ✓"
    assert rows["numbers in every cell"]["difference"] == "✓ equal"
    assert explorer.cost_from == "fit"
    assert rows["time"]["difference"].endswith("%")
    explorer.cost_from = "nvlink"
    assert explorer.picture["table"]["rows"][1]["difference"] == "another link"


@pytest.mark.dist
def test_a_sweep_times_seven_sizes_and_holds_some_out_of_its_fit():
    explorer = CollectiveExplorer(ranks=2, size_bytes=2**20)
    explorer.run(wait=True, button="sweep")
    assert explorer.cost_from == "fit"
    assert len(explorer.measured["points"]) == 7
    assert all(part is not None for _, _, part in explorer.measured["points"])
    assert "held out" in explorer.note
    rows = {row["label"]: row for row in explorer.picture["table"]["rows"]}
    assert rows["time"]["difference"].endswith("%")
