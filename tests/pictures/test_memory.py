from dataclasses import replace

import numpy as np
import pytest

from playbook.pictures.copies import scenario_copies
from playbook.pictures.memory import memory_picture
from playbook.pictures.memory_groups import GROUPS, group_bytes, grouped_levels
from playbook.pictures.memory_run import (
    MeasuredMemory,
    TracedStep,
    measured_data,
    predicted,
    stand_in,
    with_step,
)
from playbook.pictures.memory_view import memory_view
from playbook.pictures.memory_words import instant_words
from playbook.spec import Layout, Scenario, Workload, model
from playbook.tables import TERMS

DEFAULTS = {
    "ranks": 64,
    "zero": 3,
    "sequence": 4096,
    "micro_batch": 1,
    "recipe": "bf16-fp32master",
    "recompute": "full",
    "framework": "textbook",
    "gpu": "h100",
}


def view(name="llama-3.1-70b", **given):
    return memory_view(name, **{**DEFAULTS, **given})


def test_state_is_sixteen_bytes_a_parameter_split_as_zero_says():
    rows = memory_picture(view())["bars"]["rows"]
    # Ψ = 70 553 706 496, N = 64: 16 Ψ, 4 Ψ + 12 Ψ / N, 2 Ψ + 14 Ψ / N, 16 Ψ / N.
    assert [row["words"] for row in rows] == ["1\u2009129", "295.4", "156.5", "17.6"]
    assert rows[1]["parts"] == "copied 282.2 + shared 13.2"
    assert [row["fits"] for row in rows] == [False, False, False, True]


def test_the_capacity_is_what_the_driver_of_an_h100_reports():
    assert memory_picture(view())["bars"]["capacity"] == 81_559 * 2**20


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "Only ZeRO-3 fits in an H100, and its peak is 1.4 × its state:"),
        ({"zero": 0}, "Only ZeRO-3 fits in an H100, DDP does not:"),
        ({"ranks": 8}, "No ZeRO stage fits in an H100:"),
        (
            {"sequence": 131_072, "recompute": "none"},
            "The state of ZeRO-3 fits in an H100, its step does not:",
        ),
    ],
)
def test_the_headline_says_what_fits(given, words):
    assert memory_picture(view(**given))["headline"][0] == words


def test_instants_are_said_as_readers_say_them():
    assert instant_words("R layers.3") == "recompute of layer 3"
    assert instant_words("F embed_tokens") == "forward of the embedding"


def test_every_term_inside_the_allocators_hands_has_one_colour():
    coloured = [term for members in GROUPS.values() for term in members]
    assert sorted([*coloured, "context", "reserved_unused"]) == sorted(TERMS)
    assert group_bytes({"optimizer": 8, "master_weights": 4})["optimizer"] == 12


def test_levels_are_summed_by_colour():
    levels = np.arange(2 * len(TERMS), dtype=float).reshape(2, len(TERMS))
    grouped = grouped_levels(levels)
    assert grouped.shape == (2, len(GROUPS))
    assert grouped[0].sum() == levels[0].sum() - levels[0, TERMS.index("context")] - levels[0, -1]


def test_packed_levels_are_within_a_step_of_the_walk():
    shown = view()
    step = memory_picture(shown)["step"]
    levels = np.frombuffer(step["levels"], "<u2").reshape(-1, len(GROUPS)) / 65535 * step["highest"]
    assert levels[step["peak"]].sum() == pytest.approx(shown.memory.peak_bytes, rel=1e-4)


def test_a_framework_without_the_recipe_gives_way_to_the_textbook_with_its_reason():
    shown = view(framework="torch", recipe="bf16-fp32grad")
    assert shown.scenario.framework == "textbook"
    assert "bf16-fp32grad" in shown.note


def test_bad_values_are_refused_and_not_drawn_by_the_textbook():
    with pytest.raises(ValueError, match="ranks=0|dp=0|world=0"):
        view(ranks=0)


def test_the_stand_in_is_small_and_keeps_strategy_recompute_and_recipe():
    chosen = stand_in(view(recipe="fsdp2-mixed").scenario)
    assert chosen.scenario.model.name == "toy-15m"
    assert chosen.scenario.world == 4
    assert chosen.strategy == "fsdp2"
    assert chosen.scenario.workload.recompute == "full"
    assert chosen.scenario.workload.recipe == "fsdp2-mixed"
    assert chosen.words == "toy-15m, ZeRO-3 on 4 ranks, sequence 128, fsdp2-mixed"


@pytest.mark.parametrize("mode", ["none", "selective", "full"])
def test_the_stand_in_computes_again_what_the_scenario_shown_does(mode):
    work = Workload(recompute=mode)
    chosen = stand_in(Scenario(model("toy-15m"), work, Layout(dp=4, zero=3)))
    assert chosen.scenario.workload.recompute == chosen.levers["recompute"] == mode


def test_a_stage_that_does_not_run_has_no_stand_in():
    shown = Scenario(model("toy-15m"), Workload(), Layout(dp=4, zero=1))
    with pytest.raises(ValueError, match="zero=0"):
        stand_in(shown)


def test_the_rank_with_the_highest_peak_counts():
    known = predicted(stand_in(view(zero=0, recipe="fp32", ranks=2).scenario))
    low = {"peak_bytes": 5, "instant": "B layers.0", "terms": [{"term": "parameters", "bytes": 5}]}
    high = {"peak_bytes": 7, "instant": "B root", "terms": [{"term": "parameters", "bytes": 7}]}
    run = with_step(known, [low, high], "tracked:gloo")
    assert run.measured == {"parameters": 7}
    shown = measured_data(run)
    assert [row["source"] for row in shown["rows"]] == ["formula", "measured"]
    assert shown["title"][1].endswith("peak by term, backward of the loss")


def test_a_trace_is_drawn_beside_the_formula_and_compared_with_it():
    shown = view()
    peak = shown.memory.peak_bytes
    traced = TracedStep(
        terms={"parameters": peak // 2, "logits": peak - peak // 2}, totals=(1e9, float(peak))
    )
    known = MeasuredMemory(shown=traced)
    data = measured_data(known)
    assert np.frombuffer(data["trace"]["totals"], "<u2")[1] == 65535
    rows = {row["label"]: row for row in memory_picture(shown, known)["table"]["rows"]}
    assert rows["peak"]["difference"] == "traced 0 ✓"


def test_a_trace_of_the_stand_in_stands_between_formula_and_measurement():
    known = predicted(stand_in(view(zero=0, recipe="fp32", ranks=2).scenario))
    step = {"peak_bytes": 7, "instant": "B root", "terms": [{"term": "parameters", "bytes": 7}]}
    run = replace(with_step(known, [step], "tracked:gloo"), traced={"parameters": 6})
    assert [row["source"] for row in measured_data(run)["rows"]] == ["formula", "traced", "measured"]
    assert run.row["traced"] == "6.00\u2009B"


def test_copies_give_the_scenario_back():
    shown = view().scenario
    forms = scenario_copies(shown)
    scope: dict = {}
    exec(forms["python"], scope)
    assert scope["scenario"] == Scenario.from_json(forms["json"])
    assert forms["command"].startswith("playbook memory --model llama-3.1-70b")
