"""Users' questions about parameter counts, asked through the public API and the command line.

Questions and answers are those of `tests/data/cases_params.json`, each with its source; no expected value is
computed here. What a case leaves open is asked with a named assumption, listed in `OPEN`.
"""

import json
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import playbook as pb
from playbook.cli import run_command
from playbook.units import GB, GIB
from tests.shapes import gpt

FILE = Path(__file__).resolve().parents[1] / "data" / "cases_params.json"
CASES: dict[str, dict[str, Any]] = {case["id"]: case for case in json.loads(FILE.read_text("utf-8"))}
ASKED: set[str] = set()

OPEN = {
    "params-06": "12 heads of 64 (the count does not depend on them), learned scalars as further parameters",
    "params-09": "the model with the derived head dim is the same one with head_dim=80",
    "params-10": "the model with the derived head dim is the same config.json without the key",
    "params-12": "served by an engine that may take all of the memory; the vision tower is left out",
    "mem-21": "the model is that of the source's own unit test: 16 features, 4 heads of 4, a feed-forward "
    "part of 64 without gate, LayerNorm, a tied vocabulary of 32",
    "mem-23": "a rank's bytes are an equal share of its stage; what each rank holds besides is told apart",
}
"""What a case does not say, and how it is asked nevertheless."""


def case(number: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Hand a test its case, and note that the case is asked."""
    ASKED.add(number)
    return pytest.mark.parametrize(
        ("given", "expected"), [(CASES[number]["input"], CASES[number]["expected"])], ids=[number]
    )


def params(line: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Run `playbook params --json` and return its object."""
    assert run_command(shlex.split(f"params --json --model {line}")) == 0
    return json.loads(capsys.readouterr().out)


def said(line: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Run `playbook params` and return its text, thin spaces as commas."""
    assert run_command(shlex.split(f"params --model {line}")) == 0
    return capsys.readouterr().out.replace("\N{THIN SPACE}", ",")


def within(expected: float, per_cent: float) -> Any:
    """A number up to a tolerance in per cent."""
    return pytest.approx(expected, rel=per_cent / 100)


def test_every_case_of_the_topic_is_asked() -> None:
    assert len(CASES) == 12
    assert set(CASES) == ASKED
    assert set(OPEN) <= ASKED
    assert all(entry["source"] for entry in CASES.values())


@case("params-02")
def test_multi_token_modules_are_told_apart_from_the_model_and_its_file(
    given: dict[str, Any], expected: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    found = params(given["config"], capsys)
    assert found["mtp"]["modules"] == given["mtp_modules"]
    assert found["mtp"]["parameters"] == expected["mtp_unique_params"]
    stored = found["mtp"]["parameters"] + found["mtp"]["shared_tables"]
    assert stored == expected["mtp_stored_incl_copies_of_embed_and_head"]
    assert found["stored"] == expected["stored_total_approx"]
    assert "1 x 11,610,067,968 parameters, not in the total" in said(given["config"], capsys)


@case("params-04")
def test_both_definitions_of_active_are_named(
    given: dict[str, Any], expected: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    found = params(given["config"], capsys)
    assert found["total"] == expected["total"] == within(given["published_total"], 0.1)
    assert found["active"] == expected["active_all"]
    bare = found["active_without_input_embedding"]
    assert bare == expected["active_without_input_embedding"] == within(given["published_active"], 0.1)
    names = {parameter.name for parameter in pb.model(given["config"]).block_parameters()}
    assert {"self_attn.sinks", "mlp.experts.down_proj_bias", "self_attn.o_proj.bias"} <= names


@case("params-06")
def test_untying_costs_one_table(given: dict[str, Any], expected: dict[str, Any]) -> None:
    untied = pb.Model(
        name="nanogpt",
        family="gpt2",
        layers=given["layers"],
        hidden=given["hidden"],
        heads=12,
        kv_heads=12,
        head_dim=64,
        ffn=given["mlp_hidden"],
        vocabulary=given["vocab"],
        max_sequence=1024,
        gated=False,
        norm="rms" if given["norm_params"] else "plain",
        qkv_bias=given["bias"],
        scalars=given["extra_scalars_per_layer"],
    )
    assert untied.parameters == expected["untied"]
    bare = replace(untied, scalars=0)
    assert bare.parameters == expected["untied_without_scalars"]
    tied = replace(bare, tied=True)
    assert tied.parameters == expected["tied_without_scalars"]
    assert bare.parameters - tied.parameters == bare.embedding


@case("params-08")
def test_a_file_may_hold_a_tied_head_twice(
    given: dict[str, Any], expected: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    found = params(given["config"], capsys)
    assert found["total"] == expected["unique"]
    assert found["stored"] == expected["stored_if_head_saved_separately"] == given["hub_stored"]
    assert found["stored"] - found["total"] == found["embedding"]
    assert "751,632,384 if tables are stored for each use" in said(given["config"], capsys)


@case("params-09")
def test_a_head_dim_that_is_given_wins_over_hidden_over_heads(
    given: dict[str, Any], expected: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    right = pb.model(given["config"])
    wrong = replace(right, head_dim=given["wrong_head_dim"])
    assert right.parameters == expected["right_total"]
    assert wrong.parameters == expected["total_with_derived_head_dim"]
    assert sum(right.qkv_features) == expected["fused_qkv_rows_right"]
    assert sum(wrong.qkv_features) == expected["fused_qkv_rows_wrong"]
    assert "8192 queries, 1024 keys, 1024 values of 5120 hidden features" in said(given["config"], capsys)


@case("params-10")
def test_a_head_dim_that_is_left_out_is_derived(given: dict[str, Any], expected: dict[str, Any]) -> None:
    right = pb.model(given["config"])
    assert right.head_dim == expected["head_dim"]
    assert right.parameters == expected["total"]
    derived = pb.model(
        {
            "model_type": "mistral",
            "hidden_size": right.hidden,
            "num_hidden_layers": right.layers,
            "num_attention_heads": right.heads,
            "num_key_value_heads": right.kv_heads,
            "intermediate_size": right.ffn,
            "vocab_size": right.vocabulary,
            "max_position_embeddings": right.max_sequence,
        }
    )
    assert derived.head_dim == given["derived_head_dim"]
    assert derived.parameters == expected["total_if_derived"]


@case("params-12")
def test_memory_goes_by_the_total_though_few_experts_are_active(
    given: dict[str, Any], expected: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    found = params(given["config"], capsys)
    assert found["total"] == expected["text_params"]
    assert found["weight_bytes"]["bf16"] / GIB == within(expected["bf16_weights_gib"], 1)
    assert found["weight_bytes"]["fp8"] / GIB == within(expected["fp8_gib"], 1)
    assert found["weight_bytes"]["int4"] / GB == within(expected["int4_gb_no_scales"], 1)
    assert "memory goes by the total, arithmetic by the active ones" in said(given["config"], capsys)
    h100 = pb.cluster("dgx-h100")
    memory = round(given["gpu_total_gib"] * GIB)
    pair = replace(h100, gpu=replace(h100.gpu, memory_bytes=memory), gpus_per_node=given["gpus"], nodes=1)
    assert pair.gpus * pair.gpu.memory_bytes / GIB == within(expected["available_gib"], 1)
    load = pb.Serving(prompt=1, output=1, concurrency=1, utilisation=1.0)
    served = pb.inference_memory(pb.model(given["config"]), load, pb.Layout(tp=given["gpus"]), pair)
    assert served.fits is expected["fits_bf16"]


@case("params-13")
def test_mixtral_is_not_eight_times_its_name(given: dict[str, Any], expected: dict[str, Any]) -> None:
    small, large = (pb.model(name) for name in given["configs"])
    assert (small.parameters, small.active) == (expected["8x7b_total"], expected["8x7b_active"])
    assert (large.parameters, large.active) == (expected["8x22b_total"], expected["8x22b_active"])


@case("params-14")
def test_counts_come_from_the_architecture_and_not_from_packed_tensors(
    given: dict[str, Any], expected: dict[str, Any]
) -> None:
    weights = pb.model(given["model"]).parameters
    assert weights == expected["true_weights"]
    assert round(weights / given["reported_numel"], 2) == expected["ratio"]


@case("params-15")
def test_the_embedding_is_told_apart(
    given: dict[str, Any], expected: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    found = params(given["config"], capsys)
    assert found["tied"] is True
    assert found["total"] == expected["total_text"]
    assert found["embedding"] == expected["embedding"]
    assert found["non_embedding"] == expected["non_embedding"]


@case("mem-21")
def test_the_mean_over_stages_is_not_what_the_heaviest_holds(
    given: dict[str, Any], expected: dict[str, Any]
) -> None:
    model = gpt(
        name="unit-test",
        layers=given["layers"],
        hidden=16,
        heads=4,
        head_dim=4,
        ffn=64,
        vocabulary=32,
        max_sequence=8,
        tied=True,
    )
    layers = tuple(given["pp_layout"])
    stages = pb.stage_weights(model, pb.Layout(pp=len(layers), stage_layers=layers))
    assert [stage.layers for stage in stages] == given["pp_layout"]
    heaviest = max(stage.parameters for stage in stages)
    assert heaviest == stages[-1].parameters == given["actual_heaviest"]
    short = 100 * (1 - given["estimated_params_average"] / heaviest)
    assert short == pytest.approx(expected["underestimate_percent"], abs=0.1)


@case("mem-23")
def test_equal_numbers_of_layers_are_not_equal_stages(
    given: dict[str, Any], expected: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    split = ",".join(map(str, given["split"]))
    line = f"{given['config']} --pp {given['pp']} --tp {given['tp']}"
    stages = params(f"{line} --stage-layers {split}", capsys)["per_stage"]
    assert [stage["parameters"] for stage in stages] == expected["params_per_stage"]
    shares = [stage["share_bytes"] / GIB for stage in stages]
    assert shares == [within(gib, 0.1) for gib in expected["bf16_gib_per_gpu"]]
    assert shares[-1] / shares[0] == within(expected["last_over_first"], 0.1)
    # Squeezing projections, routers and norms are copied to each rank: more than an equal share, below 2 %.
    assert all(1 < stage["rank_bytes"] / stage["share_bytes"] < 1.02 for stage in stages)
    better = params(f"{line} --stage-layers 22,20,19", capsys)["per_stage"]  # what the case proposes
    assert max(stage["rank_bytes"] for stage in better) < max(stage["rank_bytes"] for stage in stages)
