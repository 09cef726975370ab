"""Users' questions about pipelines, asked through the public API and the command line.

Questions and answers are those of `tests/data/cases_pipeline.json`, each with its source; no expected value
is computed here. What a case leaves open is asked for several values, and named in `OPEN`.
"""

import json
import shlex
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import playbook as pb
from playbook.cli import run_command

FILE = Path(__file__).resolve().parents[1] / "data" / "cases_pipeline.json"
CASES: dict[str, dict[str, Any]] = {case["id"]: case for case in json.loads(FILE.read_text("utf-8"))}
ASKED: set[str] = set()

OPEN = {
    "pp-02": "schedule: gpipe and 1f1b, which idle alike",
    "pp-03": "schedule: gpipe and 1f1b, which idle alike",
    "pp-05": "micro-batches m: warm-up does not depend on it where p divides m",
    "pp-06": "chunks v: neither rule reads it",
    "pp-07": "schedule: the note names gpipe; costs: any",
    "pp-12": "micro-batches m: idle time does not depend on it from p on; notation: the API takes I and W, "
    "no full B beside W, so both formulas are one call",
    "pp-14": "schedule: gpipe and 1f1b, which idle alike",
}
"""What a case does not say, and how it is asked nevertheless."""


def case(number: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Hand a test its case, and note that the case is asked."""
    ASKED.add(number)
    given = CASES[number]["input"] | {"expected": CASES[number]["expected"]}
    return pytest.mark.parametrize("case", [given], ids=[number])


def as_printed(found: float, expected: float) -> bool:
    """Tell whether two numbers agree in all decimals that the case prints."""
    decimals = max(0, -int(Decimal(str(expected)).as_tuple().exponent))
    return round(found, decimals) == expected


def refused(name: str, framework: str | None = None, **sizes: int) -> str:
    """Text of a refusal, empty if the schedule is made."""
    try:
        pb.schedule(name, framework=framework, **sizes)
    except ValueError as error:
        return str(error)
    return ""


def test_every_case_of_the_topic_is_asked() -> None:
    assert len(CASES) == 9
    assert set(CASES) == ASKED
    assert set(OPEN) <= ASKED
    assert all(entry["source"] for entry in CASES.values())


@case("pp-02")
@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_four_stages_and_four_microbatches_idle_in_both_conventions(case: dict[str, Any], name: str) -> None:
    found = pb.schedule(name, stages=case["p"], microbatches=case["m"]).simulate()
    assert as_printed(found.idle_over_ideal, case["expected"]["idle_over_ideal"])
    assert as_printed(found.idle_over_makespan, case["expected"]["idle_over_total"])


@case("pp-02")
def test_the_command_line_labels_both_conventions(
    case: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    line = f"schedule 1f1b --stages {case['p']} --microbatches {case['m']}"
    assert run_command(shlex.split(f"{line} --json")) == 0
    found = json.loads(capsys.readouterr().out)
    assert as_printed(found["idle_over_ideal"], case["expected"]["idle_over_ideal"])
    assert as_printed(found["idle_over_makespan"], case["expected"]["idle_over_total"])
    assert run_command(shlex.split(line)) == 0
    labelled = capsys.readouterr().out
    assert "idle / ideal" in labelled
    assert "idle / makespan" in labelled


@case("pp-03")
@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_with_many_microbatches_both_conventions_nearly_agree(case: dict[str, Any], name: str) -> None:
    found = pb.schedule(name, stages=case["p"], microbatches=case["m"]).simulate()
    assert as_printed(found.idle_over_makespan, case["expected"]["idle_over_total"])
    assert as_printed(found.idle_over_ideal, case["expected"]["idle_over_ideal"])


@case("pp-05")
@pytest.mark.parametrize("microbatches", [8, 16, 64])
def test_interleaved_warm_up_is_twice_the_ranks_below_and_the_other_chunks(
    case: dict[str, Any], microbatches: int
) -> None:
    made = pb.schedule("interleaved-1f1b", stages=case["p"], microbatches=microbatches, chunks=case["v"])
    assert [made.warmup[rank] for rank in case["ranks"]] == case["expected"]["warmup"]
    assert [made.warmup[rank] for rank in case["ranks"]] != case["expected"]["wrong_guess"]


@case("pp-06")
@pytest.mark.parametrize("chunks", [2, 3])
def test_interleaving_is_refused_by_the_rule_of_the_framework_alone(
    case: dict[str, Any], chunks: int
) -> None:
    sizes = [{"stages": case["p"], "microbatches": m, "chunks": chunks} for m in case["m"]]
    strict = [refused("interleaved-1f1b", "megatron", **size) for size in sizes]
    flexible = [refused("interleaved-1f1b", "torch", **size) for size in sizes]
    assert [not text for text in strict] == case["expected"]["strict"]
    assert [not text for text in flexible] == case["expected"]["flexible"]
    assert not any(refused("interleaved-1f1b", **size) for size in sizes)
    for text, upward in zip(strict, case["expected"]["round_up_strict"], strict=True):
        offered = text.rpartition("microbatches=")[2].split(" or ")
        assert str(upward) in offered


@case("pp-07")
def test_fewer_microbatches_than_stages_are_legal_and_some_runtimes_refuse_them(case: dict[str, Any]) -> None:
    sizes = {"stages": case["p"], "microbatches": case["m"]}
    found = pb.schedule("gpipe", **sizes).simulate()
    assert as_printed(found.idle_over_makespan, case["expected"]["idle_over_total"])
    legal = not refused("gpipe", **sizes) and not refused("1f1b", **sizes)
    assert legal is case["expected"]["schedule_is_legal"]
    rejected = refused("1f1b", "torch", **sizes)
    assert bool(rejected) is case["expected"]["some_runtimes_reject_or_hang"]
    assert "gpipe" in rejected


@case("pp-09")
def test_two_stages_interleave(case: dict[str, Any]) -> None:
    sizes = {"stages": case["p"], "microbatches": case["m"]}
    legal = [
        not refused("interleaved-1f1b", framework, **sizes, chunks=case["v"])
        for framework in (None, "megatron", "torch")
    ]
    assert set(legal) == {case["expected"]["legal"]}
    interleaved = pb.schedule("interleaved-1f1b", **sizes, chunks=case["v"]).simulate()
    assert as_printed(interleaved.idle_over_makespan, case["expected"]["bubble_fraction"])
    plain = pb.schedule("1f1b", **sizes).simulate()
    assert as_printed(plain.idle_over_makespan, case["expected"]["1f1b_fraction"])


@case("pp-11")
def test_1f1b_holds_as_many_microbatches_as_stages_and_gpipe_all(case: dict[str, Any]) -> None:
    sizes = {"stages": case["p"], "microbatches": case["m"]}
    frugal = pb.schedule("1f1b", **sizes).simulate().peak_live
    greedy = pb.schedule("gpipe", **sizes).simulate().peak_live
    assert list(frugal) == case["expected"]["peak_inflight_1f1b"]
    assert list(greedy) == case["expected"]["peak_inflight_gpipe"]
    assert greedy[0] / frugal[0] == case["expected"]["ratio_stage0"]


@case("pp-12")
@pytest.mark.parametrize("microbatches", [8, 16, 64])
def test_a_split_backward_idles_a_third_of_1f1b(case: dict[str, Any], microbatches: int) -> None:
    sizes = {"stages": case["p"], "microbatches": microbatches}
    costs = {"forward": case["F"], "backward_input": case["B_input"], "backward_weight": case["W"]}
    assert pb.schedule("1f1b", **sizes).simulate(**costs).idle == case["expected"]["1f1b"]
    split = pb.schedule("zb-h1", **sizes).simulate(**costs).idle
    assert split == case["expected"]["zb_h1"]
    assert split == case["expected"]["zb_h1_in_full_backward_notation"]


@case("pp-12")
def test_the_formula_names_the_parts_of_backward_and_not_an_ambiguous_b(
    case: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(shlex.split(f"schedule zb-h1 --stages {case['p']} --microbatches 16")) == 0
    said = capsys.readouterr().out
    _, found, value = said.partition("(p − 1)(F + I − W) = ")
    assert found, said
    assert float(value.split()[0]) == case["expected"]["zb_h1"]


@case("pp-14")
@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_the_bubble_does_not_depend_on_how_long_backward_takes(case: dict[str, Any], name: str) -> None:
    made = pb.schedule(name, stages=case["p"], microbatches=case["m"])
    found = made.simulate(forward=case["tF"], backward=case["tB"])
    assert found.makespan == case["expected"]["makespan"]
    for backward in (case["tB"], 1, 3, 4.5):
        share = made.simulate(forward=case["tF"], backward=backward).idle_over_makespan
        assert as_printed(share, case["expected"]["idle_over_total"])
