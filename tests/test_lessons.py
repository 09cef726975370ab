import ast

import pytest

import playbook as pb
from playbook import lessons


def test_the_first_exercise_is_worked_for_the_example():
    # Llama 3.1 70B has 70 553 706 496 parameters; x 16 B / 64 ranks = 17.638 GB.
    done = pb.check("00.1", 17.638)
    assert done
    assert done.right
    assert "70\N{THIN SPACE}553\N{THIN SPACE}706\N{THIN SPACE}496 x 16 B / 64 ranks" in done.working
    assert done.hint == ""


def test_the_answer_follows_the_readers_scenario():
    scenario = pb.Scenario(pb.model("llama-3.1-8b"), pb.Workload(recipe="bf16-fp32grad"), pb.Layout(dp=8))
    # 8 030 261 248 x 18 / 8 = 18.068 GB.
    assert pb.check("00.1", 18.068, scenario)
    assert not pb.check("00.1", 17.638, scenario)


def test_one_rank_is_not_counted_as_several():
    alone = pb.Scenario(pb.model("llama-3.1-8b"), pb.Workload(), pb.Layout(dp=1, zero=3))
    done = pb.check("00.1", 0, alone)
    assert "model state does the only rank hold under ZeRO-3" in done.question
    assert "B / 1 rank = " in done.working


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (1128.86, "before it is shared"),
        (295.44, "ZeRO-1"),
        (156.54, "ZeRO-2"),
        (16.427, "GiB"),
        (17.638e9, "in bytes"),
        (3.0, "Count the bytes a parameter takes"),
    ],
)
def test_known_mistakes_of_the_first_exercise_are_named(answer, hint):
    done = pb.check("00.1", answer)
    assert not done
    assert hint in done.hint


def test_the_second_exercise_takes_a_fraction_or_its_text():
    # p = 4, m = 16: (p - 1)/(m + p - 1) = 3/19.
    assert pb.check("00.2", 3 / 19)
    assert pb.check("00.2", "3/19")
    assert "idle / ideal" in pb.check("00.2", 3 / 16).hint
    assert "per cent" in pb.check("00.2", 15.79).hint


@pytest.mark.parametrize(("microbatches", "share"), [(4, "3/7"), (16, "3/19"), (32, "3/35")])
def test_the_bubble_is_that_of_the_papers_formula(microbatches, share):
    workload = pb.Workload(global_batch=microbatches)
    scenario = pb.Scenario(pb.model("llama-3.1-8b"), workload, pb.Layout(pp=4))
    assert pb.check("00.2", share, scenario)
    assert f"{share} =" in pb.check("00.2", share, scenario).working


def test_the_third_exercise_counts_a_ring_all_reduce():
    # 15 733 632 parameters x 4 B = 62.93 MB; 2 x 3/4 of it is 94.40 MB.
    assert pb.check("00.3", 94.40)
    assert "2 (N - 1)/N" in pb.check("00.3", 62.93).hint
    assert "reduce-scatter alone" in pb.check("00.3", 47.2).hint
    assert "2 (N - 1) = 6 steps" in pb.check("00.3", 0).working


def test_without_an_answer_the_question_is_shown():
    asked = pb.check("00.3")
    assert not asked
    assert asked.verdict.startswith("00.3: How many MB")


def test_a_check_shows_its_verdict_and_the_working_only_when_it_is_right():
    assert repr(pb.check("00.2", "3/19")).splitlines()[0] == "00.2: 0.1579 is right."
    assert "\n" not in repr(pb.check("00.2", 0.5))
    assert pb.check("00.2", 0.5)._repr_html_().startswith("<b>✕ 00.2: 0.5 is not it yet.")
    assert "<details>" in pb.check("00.2", 0.5)._repr_html_()


@pytest.mark.parametrize(
    "answer", ["many", [1], "1/0", True, float("nan"), float("inf"), "nan", "1e999", {}, "", "GB"]
)
def test_an_answer_that_is_no_number_is_refused(answer):
    with pytest.raises(ValueError, match="is no number; give one such as 17.5 or '3/19'"):
        pb.check("00.1", answer)


@pytest.mark.parametrize("answer", ["17.638 GB", "17.638\u2009GB", "17638 MB", "16.427GiB", "1.7638e10 B"])
def test_an_answer_may_name_its_unit(answer):
    assert pb.check("00.1", answer)


@pytest.mark.parametrize(
    ("exercise", "answer", "words"),
    [
        ("00.1", "295 W", "answer='295 W' is in 'W', but exercise 00.1 takes an answer in GB, such as 295"),
        ("00.2", "15.8 %", "is in '%', but exercise 00.2 takes a number without a unit, such as 15.8"),
        ("01.2", "14 ranks", "is in 'ranks', but exercise 01.2 takes a number without a unit, such as 14"),
    ],
)
def test_another_unit_is_refused_in_words(exercise, answer, words):
    with pytest.raises(ValueError, match=words):
        pb.check(exercise, answer)


def test_an_unknown_exercise_lists_those_that_there_are():
    with pytest.raises(ValueError, match="there is no exercise '99.9'; exercises are 00.1, 00.2, 00.3"):
        pb.check("99.9", 1)


@pytest.mark.parametrize("exercise", lessons.exercises().values(), ids=lambda exercise: exercise.id)
def test_every_exercise_accepts_its_own_solution_and_names_its_mistakes(exercise):
    scenario = exercise.example()
    assert pb.check(exercise.id, exercise.solution(scenario), scenario)
    assert exercise.question(scenario).endswith(("?", ")"))
    for text, mistake in exercise.mistakes:
        assert pb.check(exercise.id, mistake(scenario), scenario).hint == text


@pytest.mark.parametrize("strategy", ["ddp", "fsdp2", "tp", "pp"])
def test_by_hand_code_is_at_most_forty_lines_and_parses(strategy):
    shown = pb.source(strategy)
    ast.parse(shown.text)
    assert 0 < shown.lines <= 40
    assert shown._repr_markdown_().startswith(f"`strategies/{strategy}/ranks.py`")
    assert f"by hand, {shown.lines} lines" in repr(shown)


def test_names_of_strategies_ignore_case_and_unknown_ones_list_all():
    assert pb.source("DDP") == pb.source("ddp")
    with pytest.raises(ValueError, match="strategy='xp' is not known; valid are ddp, fsdp2, pp, tp"):
        pb.source("xp")


def test_code_lines_leave_out_docstrings_comments_and_empty_lines():
    text = 'def f(x):\n    """Say.\n\n    More.\n    """\n    # why\n\n    return x\n'
    assert lessons.count_code_lines(text) == 2


def test_decorators_belong_to_what_is_shown():
    text = "import a\n\n@a.b\ndef f():\n    return 1\n\nx = 3\nclass C:\n    y = 2\n\nBY_HAND = (C, f)\n"
    assert lessons.by_hand_part(text) == "class C:\n    y = 2\n\n\n@a.b\ndef f():\n    return 1"
