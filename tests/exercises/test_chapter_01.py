"""Exercises of chapter 01: worked by hand for the example and for a scenario of the reader's own."""

import pytest

import playbook as pb

EXAMPLE = {"01.1": 295.443645, "01.2": 14, "01.3": 5.36870912, "01.4": 6.304038912, "01.5": 141.107412992}
"""Llama 3.1 70B, 70 553 706 496 parameters, N = 64, one sequence of 4 096 tokens.

4 x 70.5537 = 282.2148, 12 x 70.5537 / 64 = 13.2288. 16 x 70.5537 = 1 128.859 / 85.521 (81 559 MiB) = 13.2.
2 x 4 096 x 8 192 = 67 108 864, 80 times. 12 x 4 096 x 128 256. 2 x 70.5537.
"""


@pytest.fixture
def own() -> pb.Scenario:
    workload = pb.Workload(micro_batch=4, sequence=2048)
    return pb.Scenario(pb.model("llama-2-7b"), workload, pb.Layout(dp=2, zero=3))


OWN = {"01.1": 67.38415616, "01.2": 2, "01.3": 2.147483648, "01.4": 3.145728, "01.5": 13.476831232}
"""Llama 2 7B, 6 738 415 616 parameters, N = 2, micro-batch 4 of 2 048 tokens.

4 x 6.7384 + 12 x 6.7384 / 2 = 10 x 6.7384. 107.8 / 85.5 = 1.26. 2 x 8 192 x 4 096 = 67 108 864, 32 times.
12 x 8 192 x 32 000. 2 x 6.7384.
"""


@pytest.mark.parametrize("number", EXAMPLE)
def test_the_right_answer_is_right_and_worked(number: str) -> None:
    told = pb.check(number, EXAMPLE[number])
    assert told
    assert told.working in repr(told)


@pytest.mark.parametrize("number", OWN)
def test_the_answer_follows_the_readers_own_scenario(number: str, own: pb.Scenario) -> None:
    assert pb.check(number, OWN[number], own)


@pytest.mark.parametrize("number", EXAMPLE)
def test_a_wrong_answer_is_wrong_and_gets_a_hint(number: str) -> None:
    told = pb.check(number, EXAMPLE[number] * 1.07)
    assert not told
    assert told.hint


@pytest.mark.parametrize(
    ("number", "answer", "hint"),
    [
        ("01.1", 1128.859, "without sharding"),
        ("01.1", 156.5, "ZeRO-2"),
        ("01.1", 17.64, "ZeRO-3"),
        ("01.1", 275.15, "GiB"),
        ("01.2", 2, "weights alone"),
        ("01.2", 13, "rounds down"),
        ("01.3", 0.0671, "one layer's"),
        ("01.3", 0.08389, "not divided"),
        ("01.3", 10.737, "BF16"),
        ("01.4", 1.0507, "BF16 logits alone"),
        ("01.4", 2.1013, "three are there"),
        ("01.5", 2.2048, "share after"),
    ],
)
def test_known_mistakes_are_named(number: str, answer: float, hint: str) -> None:
    assert hint in pb.check(number, answer).hint


def test_one_rank_is_not_one_of_several() -> None:
    alone = pb.Scenario(pb.model("llama-2-7b"), pb.Workload(), pb.Layout(dp=1, zero=3))
    told = [pb.check(number, 0, alone) for number in EXAMPLE]
    said = " ".join(f"{one.question} {one.working}" for one in told)
    assert "1 ranks" not in said
    assert "one of 1" not in said
    assert "by 1:" not in said
    assert ", one rank. How many GB" in told[0].question
    assert "on the only data-parallel rank?" in told[2].question
    # 16 x 6.7384 GB are 107.8 GB, on one rank as without sharding
    assert pb.check("01.1", 107.8146, alone)


def test_a_model_that_fits_on_one_gpu_needs_one_rank() -> None:
    small = pb.Scenario(pb.model("toy-15m"), pb.Workload(), pb.Layout(dp=1, zero=3))
    assert "so one rank." in pb.check("01.2", 1, small).working
