"""What holds for every strategy of the folder that runs on ranks."""

import gc
import inspect
import time
from importlib import import_module
from importlib.resources import files

import pytest

from playbook.lessons import source
from playbook.runtime.strategy_run import prepare, strategy_run
from playbook.strategies import plan, runnable

STRATEGIES = runnable()


def ranks_of(name):
    return import_module(f"playbook.strategies.{name}.ranks")


@pytest.mark.parametrize("name", STRATEGIES)
def test_by_hand_and_by_library_take_the_same_levers(name):
    hand, library = (
        set(inspect.signature(getattr(ranks_of(name), f"by_{by}")).parameters) for by in ("hand", "library")
    )
    assert hand <= library
    assert library - hand <= {"precision", "stage_of"}  # mixed precision; a tracer's own stage


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_code_by_hand_has_at_most_forty_lines_and_calls_torch_distributed(name):
    shown = source(name)
    assert shown.lines <= 40
    assert "dist." in shown.text
    assert "def by_hand" in shown.text


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_lesson_is_short_and_names_its_sources(name):
    text = (files("playbook.strategies") / name / "lesson.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 60
    for part in (
        "**What it splits.**",
        "**What stays.**",
        "**What it sends.**",
        "**Break it.**",
        "## Sources",
    ):
        assert part in text


@pytest.mark.parametrize("name", STRATEGIES)
def test_there_are_two_faults_to_plant_and_levers_are_described(name):
    function, spoil = ranks_of(name).WRONG_OFFSET
    assert callable(spoil(getattr(ranks_of(name), function)))
    assert all(plan(name).run_levers.values())


def test_names_ignore_case_and_unknown_ones_list_all():
    assert prepare("DDP", 2)[3] == "ddp by hand"
    assert prepare("All-Reduce", 2)[3] == "all_reduce by ring"
    with pytest.raises(ValueError, match="valid are ddp, fsdp2, pp, tp, all_reduce"):
        prepare("xp", 2)


def test_levers_have_names():
    with pytest.raises(TypeError, match="takes levers by name"):
        prepare("ddp", 2, ("library",))


def test_a_run_defaults_to_the_toy_model_in_fp32():
    run = strategy_run("fsdp2", 4)
    assert run.scenario.model.name == "toy-15m"
    assert run.scenario.workload.recipe == "fp32"
    assert (run.scenario.layout.dp, run.scenario.layout.zero) == (4, 3)


def tensors_alive():
    """Count large tensors once gloo's own threads have had time to let go of the last messages."""
    import torch

    deadline_s = time.monotonic() + 30
    while True:
        gc.collect()
        found = sum(isinstance(one, torch.Tensor) and one.numel() > 1_000 for one in gc.get_objects())
        if not found or time.monotonic() > deadline_s:
            return found
        time.sleep(0.05)


@pytest.mark.dist
@pytest.mark.timeout(120)
@pytest.mark.parametrize("by", ["hand", "library"])
@pytest.mark.parametrize("name", STRATEGIES)
def test_nothing_of_a_run_stays_on_the_ranks(two, tiny, name, by):
    two.submit(name, by=by, model=tiny, sequence=8, micro_batch=1, repeats=1).result(60)
    assert two.submit(tensors_alive).result(60).values == (0, 0)


def test_a_strategy_without_code_for_ranks_is_told_to_be_predicted_only():
    with pytest.raises(ValueError, match="'ZeRO1' is predicted only.*ddp, fsdp2, pp, tp"):
        prepare("ZeRO1", 2)
