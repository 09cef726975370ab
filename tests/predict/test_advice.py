"""Refusals of frameworks: each names the framework that was asked, and whoever follows its advice arrives."""

import itertools
import re
from dataclasses import replace

import pytest

import playbook as pb
from playbook.frameworks import policies
from playbook.spec.recipe import RECIPES

MODELS = ("llama-3.1-8b", "mixtral-8x7b", "deepseek-v2-lite")
LAYOUTS = (
    {},
    {"dp": 8, "zero": 3},
    {"dp": 8, "zero": 2},
    {"dp": 2, "tp": 2, "zero": 3, "sequence_parallel": True},
    {"dp": 4, "dp_replicate": 2, "zero": 1},
)
FIELD = re.compile(r"(\w+)=((?:'[^']*'|\w+)(?:(?:, | or )(?:'[^']*'|\d\b))*)")
VALUE = re.compile(r"'([^']*)'|\b(?!or\b)(\w+)")


def refusal(s):
    """Words of the refusal of a scenario; None where it is predicted."""
    try:
        pb.training_memory(s)
    except ValueError as error:
        return str(error)
    return None


def advised(text):
    """Every change that the end of a refusal advises, as fields and values."""
    for clause in re.split(r", or (?=\w+=)", text.rpartition("; use ")[2]):
        if clause.startswith("a dense "):
            yield {"model": "llama-3.1-8b"}
        elif clause.startswith("one of "):
            names = clause.removeprefix("one of ").partition(" (")[0].split(", ")
            yield from ({"recipe": name, **({"zero": "3"} if "mixed" in name else {})} for name in names)
        else:
            found = {name: VALUE.findall(values) for name, values in FIELD.findall(clause)}
            assert found, f"no advice that can be followed in {clause!r} of {text!r}"
            for values in itertools.product(*found.values()):
                yield {name: quoted or bare for name, (quoted, bare) in zip(found, values, strict=True)}


def followed(s, change):
    """The scenario after a change."""
    meant = {"True": True, "False": False, "None": None}
    values = {name: int(word) if word.isdigit() else meant.get(word, word) for name, word in change.items()}
    parts: dict = {"framework": values.pop("framework", s.framework), "cluster": None}
    parts["model"] = pb.model(values.pop("model")) if "model" in values else s.model
    work = {name: values.pop(name) for name in ("recipe", "lora") if name in values}
    parts["workload"] = replace(s.workload, **work)
    return replace(s, layout=replace(s.layout, **values), **parts)


def follow(s, arrived, path=()):
    """Follow every advice from a scenario to where it is predicted; `arrived` takes those that lead there."""
    assert s not in path, f"advice in a circle: {[refusal(one) for one in path]}"
    text = None if s in arrived else refusal(s)
    if text is not None:
        asked = re.findall(r"framework[= ]'(\w+)'", text.rpartition("; use ")[0])
        assert set(asked) <= {s.framework}, text
        changes = list(advised(text))
        assert changes, f"no advice in {text!r}"
        for change in changes:
            follow(followed(s, change), arrived, (*path, s))
    arrived.add(s)


@pytest.fixture(scope="module")
def arrived():
    """Scenarios whose advice leads to a prediction, each followed once."""
    return set()


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("framework", policies())
def test_whoever_follows_the_advice_of_a_refusal_arrives(framework, model, arrived):
    for recipe, layout in itertools.product(RECIPES, LAYOUTS):
        work = pb.Workload(recipe=recipe)
        start = pb.Scenario(pb.model(model), work, pb.Layout(**layout), framework=framework)
        follow(start, arrived)
        assert start in arrived


def test_a_framework_without_the_schedule_is_not_advised():
    """Of those that pipeline, torch has zbv (`ScheduleZBVZeroBubble`); Megatron and nanotron have not."""
    layout = pb.Layout(pp=4, schedule="zbv")
    with pytest.raises(ValueError, match="use schedule='1f1b', or framework='textbook' or 'torch'$"):
        pb.training_memory(pb.Scenario(pb.model("llama-3.1-8b"), layout=layout, framework="deepspeed"))


@pytest.mark.parametrize(
    ("framework", "model", "recipe", "words"),
    [
        ("deepspeed", "deepseek-v2-lite", "fp32", "framework 'deepspeed' is read from"),
        ("torchtitan", "mixtral-8x7b", "fp32", "framework='torchtitan' does not run here"),
        ("torchtitan", "llama-3.1-8b", "fp8", "use recipe='fp32', or framework='textbook'$"),
        ("nanotron", "llama-3.1-8b", "muon", "use recipe='bf16-fp32grad', or framework='textbook'$"),
    ],
)
def test_a_refusal_names_the_framework_that_was_asked_and_a_recipe_that_it_takes(
    framework, model, recipe, words
):
    with pytest.raises(ValueError, match=words):
        pb.training_memory(pb.Scenario(pb.model(model), pb.Workload(recipe=recipe), framework=framework))
