"""What a few controls make of a training scenario: what is capped, split and stood in for, and says so."""

from typing import Any

import pytest

from playbook.pictures.memory import memory_picture
from playbook.pictures.memory_view import MemoryView, memory_view
from playbook.pictures.memory_words import layout_words
from playbook.predict import training_memory
from playbook.spec import Layout, Scenario, Workload, model

CONTROLS: dict[str, Any] = {
    "ranks": 8,
    "zero": 3,
    "sequence": 4096,
    "micro_batch": 1,
    "recipe": "fsdp2-mixed",
    "recompute": "none",
    "framework": "torch",
    "gpu": "h100",
}


def view(name: str = "llama-3.1-8b", **given: Any) -> MemoryView:
    return memory_view(name, **{**CONTROLS, **given})


def test_a_sequence_is_capped_at_learned_positions_and_the_picture_says_so() -> None:
    shown = view("gpt2")
    # gpt2 has 1 024 learned positions
    assert shown.scenario.workload.sequence == 1024
    assert shown.cut_from == 4096
    assert memory_picture(shown)["warnings"][0] == (
        "gpt2 has 1\u2009024 learned positions: the step drawn is of 1\u2009024 tokens, not of the "
        "4\u2009096 asked for."
    )


@pytest.mark.parametrize(("name", "sequence"), [("gpt2", 1024), ("gpt2", 512), ("llama-3.1-8b", 4096)])
def test_a_sequence_that_the_model_takes_stays(name: str, sequence: int) -> None:
    shown = view(name, sequence=sequence)
    assert shown.scenario.workload.sequence == sequence
    assert shown.cut_from == 0


@pytest.mark.parametrize("split", [True, False])
def test_the_peak_is_that_of_the_same_layout_given_to_the_prediction(split: bool) -> None:
    shown = view(tp=2, sequence=2048, sequence_parallel=split)
    work = Workload(sequence=2048, global_batch=8, recipe="fsdp2-mixed")
    layout = Layout(dp=8, tp=2, zero=3, sequence_parallel=split)
    plain = training_memory(Scenario(model("llama-3.1-8b"), work, layout, framework="torch"))
    assert shown.memory.peak_bytes == plain.peak_bytes


def test_sequence_parallelism_is_named_where_it_is_on_and_lowers_the_peak() -> None:
    split, whole = view(tp=2), view(tp=2, sequence_parallel=False)
    assert split.memory.peak_bytes < whole.memory.peak_bytes
    on, off = memory_picture(split), memory_picture(whole)
    assert on["kick"] == "llama-3.1-8b · 16 ranks: dp 8 · tp 2 with SP · training"
    assert on["step"]["title"][0] == "One ZeRO-3 step with SP on rank 0"
    assert off["kick"] == "llama-3.1-8b · 16 ranks: dp 8 · tp 2 · training"
    assert off["step"]["title"][0] == "One ZeRO-3 step on rank 0"


def test_without_tensor_ranks_nothing_is_split() -> None:
    assert not view().scenario.layout.sequence_parallel
    assert layout_words(Layout(tp=4, sequence_parallel=True)) == "4 ranks: tp 4 with SP"


@pytest.mark.parametrize("ranks", [64, 8])
def test_a_stood_in_framework_is_told_in_title_and_headline_whether_the_state_fits_or_not(
    ranks: int,
) -> None:
    # 16 bytes x 46.7 billion over 8 ranks are more than an H100 has, over 64 they are not
    drawn = memory_picture(view("mixtral-8x7b", ranks=ranks))
    assert drawn["headline"][1].endswith(", by the papers' accounting.")
    assert drawn["step"]["title"][0] == "One ZeRO-3 step on rank 0, by the papers' accounting"
    assert drawn["step"]["title"][1].startswith("in place of PyTorch, no buffers")
    asked = memory_picture(view("mixtral-8x7b", ranks=ranks, framework="textbook"))
    assert "accounting" not in " ".join(asked["headline"])
