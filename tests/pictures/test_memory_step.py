"""Words under the curve of a step, by hand from the order of the rank that is drawn."""

import pytest

from playbook.pictures.memory_step import step_picture, stretches
from playbook.pictures.memory_view import MemoryView, memory_view


def view(**given: object) -> MemoryView:
    plain = {"ranks": 1, "zero": 0, "sequence": 128, "micro_batch": 1, "recipe": "fp32", "recompute": "none"}
    return memory_view("toy-15m", framework="textbook", gpu="h100", **plain | given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("schedule", "microbatches", "words"),
    [
        # the last of two ranks alternates under 1F1B, the first runs both its forwards before
        ("1f1b", 16, "forward and backward of 16 micro-batches in turn"),
        ("gpipe", 16, "forward of all 16 micro-batches, then backward"),
        ("looped-bfs", 4, "forward of all 4 micro-batches, then backward"),
        ("zb-h1", 4, "forward and both parts of backward of 4 micro-batches in turn"),
        ("gpipe", 1, ""),
    ],
)
def test_what_stands_under_a_step_is_what_its_order_does(
    schedule: str, microbatches: int, words: str
) -> None:
    step = step_picture(view(pp=2, schedule=schedule, microbatches=microbatches))
    assert step["turns"] == words


def test_stretches_are_those_of_the_rank_that_is_drawn() -> None:
    # rank 0 of 2 under 1F1B: F0 F1 B0 F2 B1 F3 B2 B3
    shown = view(pp=2, microbatches=4)
    assert shown.memory.worst_rank["pp"] == 0
    assert stretches(shown) == "FBFBFB"
    assert stretches(view(microbatches=2)) == "FBFB"


def test_two_long_stretches_are_named_however_many_micro_batches_they_hold() -> None:
    spans = step_picture(view(pp=2, schedule="gpipe", microbatches=64))["spans"]
    assert [words for words, _, _ in spans][:2] == ["forward", "backward"]
    assert step_picture(view(pp=2, microbatches=64))["spans"] == []


def test_layers_of_a_stretch_are_named_where_a_rank_holds_one_stage() -> None:
    one = step_picture(view(pp=2, microbatches=1))["spans"]
    assert [words for words, _, _ in one][0] in ("forward, layer 0 → 2", "forward, layer 3 → 5")
    # rank 0 of a V holds the first layers and the last
    assert step_picture(view(pp=2, schedule="zbv", microbatches=1))["spans"][0][0] == "forward"
