"""Users' questions about training memory, asked through the public API and the command line.

Those about recipes and adapters stand in the file of that name. Questions and answers are those of
`tests/data/cases_train_memory.json`; no expected value is computed here.
"""

from typing import Any

import pytest

import playbook as pb
from playbook.predict.zero import zero_states
from playbook.spec import recipe
from tests.cases.train_memory import (
    ASKED,
    CASES,
    GB,
    GIB,
    MB,
    NOT_ASKED,
    OPEN,
    case,
    command,
    predict,
    term,
    within,
)
from tests.shapes import gpt

ABOUT_RECIPES = {"mem-14", "mem-15", "mem-17", "mem-18", "mem-19", "mem-20", "mem-24"}
"""Cases that the other file asks."""


def test_every_case_of_the_topic_is_asked_or_says_what_is_missing() -> None:
    assert len(CASES) == 15
    assert set(CASES) == ASKED | ABOUT_RECIPES | set(NOT_ASKED)
    assert not (ASKED | ABOUT_RECIPES) & set(NOT_ASKED)
    assert set(OPEN) <= ASKED | ABOUT_RECIPES
    assert all(entry["source"] for entry in CASES.values())


GPT_J = gpt(
    name="gpt-j-6b",
    layers=28,
    hidden=4096,
    heads=16,
    head_dim=256,
    ffn=16384,
    vocabulary=50400,
    max_sequence=2048,
)


@case("mem-04")
def test_with_everything_offloaded_the_largest_layer_is_left(
    given: dict[str, Any], expected: dict[str, Any]
) -> None:
    found = predict(
        GPT_J, pb.Layout(dp=2, zero=given["zero"]), sequence=1, offload="cpu", offload_parts="all"
    )
    assert found.peak_bytes / GIB == within(expected["estimate_explained_gib"], 1)
    assert found.host_bytes > 10 * found.peak_bytes


@case("mem-04")
def test_more_gpus_shrink_the_states_and_leave_activations_and_logits(
    given: dict[str, Any], expected: dict[str, Any]
) -> None:
    two, four = (predict(GPT_J, pb.Layout(dp=n, zero=given["zero"]), sequence=2048) for n in given["gpus"])
    for name in ("activations", "logits"):
        assert term(two, name) == term(four, name)
    for name in ("parameters", "gradients", "optimizer", "master_weights"):
        assert term(two, name) == within(2 * term(four, name), 0.01)


@case("mem-05")
def test_logits_of_one_sequence_are_far_from_the_failed_allocation(
    given: dict[str, Any], expected: dict[str, Any]
) -> None:
    s = pb.Scenario(pb.model(given["config"]), pb.Workload(sequence=given["tokens"]), pb.Layout(dp=8, zero=3))
    found = pb.explain_allocation(given["failed_alloc_gib"] * GIB, s)
    (logits,) = [row for row in found.rows if row["tensor"] == "logits"]
    assert logits["bytes"] / GIB == within(expected["fp32_logits_gib"], 1)
    assert logits["sequence"] == within(expected["tokens_implied_by_49gib"], 1)


@case("mem-05")
def test_logits_in_two_dtypes_and_their_gradient_stand_side_by_side(
    given: dict[str, Any], expected: dict[str, Any]
) -> None:
    work = {"sequence": given["tokens"], "recipe": "fsdp2-mixed", "recompute": "full"}
    found = predict("qwen3-8b", pb.Layout(dp=8, zero=3), framework="transformers", **work)
    logits = {
        tensor.name: tensor.bytes / GIB for tensor in found.walk.program.templates if tensor.term == "logits"
    }
    assert logits["logits"] == within(expected["bf16_logits_gib"], 1)
    assert logits["wide logits"] == within(expected["fp32_logits_gib"], 1)
    place = list(found.walk.term_names).index("logits")
    together = expected["peak_bf16_plus_fp32_plus_fp32_grad_gib"]
    assert found.walk.levels[:, place].max() / GIB == within(together, 1)


@case("mem-08")
def test_selective_recompute_drops_the_scores_and_with_flash_attention_nothing(
    given: dict[str, Any], expected: dict[str, Any]
) -> None:
    def deep(layers: int) -> pb.Model:
        return gpt(
            name="gpt",
            layers=layers,
            hidden=12288,
            heads=96,
            head_dim=128,
            ffn=49152,
            vocabulary=64,
            max_sequence=2048,
        )

    layout = pb.Layout(tp=8, sequence_parallel=True)

    def kept(**work: Any) -> int:
        eight, one = (term(predict(deep(n), layout, sequence=2048, **work), "activations") for n in (9, 1))
        return eight - one  # what eight layers add; one is alive again where it is recomputed

    assert given["a_s_over_h"] == deep(1).heads * 2048 / deep(1).hidden
    naive = kept(attention="math", recompute="selective") / kept(attention="math")
    assert naive == within(expected["paper_ratio_without_flash"], 1)
    saving = 1 - kept(recompute="selective") / kept()
    assert saving <= expected["measured_saving_fraction"] <= expected["with_flash_saving_fraction_max"]


@case("mem-08")
def test_the_answer_says_that_flash_attention_keeps_no_scores(
    given: dict[str, Any], expected: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    line = "memory --model llama-3.2-1b --recompute selective"
    assert "flash attention keeps none" in command(line, capsys)["note"]
    assert command(f"{line} --attention math", capsys)["note"] == ""


@case("mem-09")
def test_attention_keeps_twelve_values_a_feature_and_no_scores_with_flash(
    given: dict[str, Any], expected: dict[str, Any]
) -> None:
    layer = gpt(
        name="gpt",
        layers=1,
        hidden=given["h"],
        heads=given["heads"],
        head_dim=256,
        ffn=32768,
        vocabulary=64,
        max_sequence=4096,
    )

    def kept(attention: str) -> dict[str, int]:
        work = pb.Workload(sequence=given["s"], micro_batch=given["b"], attention=attention)
        return {t.name: int(t.bytes) for t in pb.program(pb.Scenario(layer, work)).templates}

    flash, naive = kept("flash"), kept("math")
    parts = ("input", "norm output", "q", "k", "v", "attention output")
    assert sum(flash[name] for name in parts) / MB == within(expected["mb_12sbh"], 1)
    assert flash["log-sum-exp"] == expected["lse_bytes"]
    scores = [naive[name] for name in ("scores", "score mask", "dropped scores")]
    assert sum(scores) / GIB == within(expected["old_quadratic_5as2b_gib"], 1)
    assert not {"scores", "score mask", "dropped scores"} & set(flash)


@case("mem-11")
def test_foreach_adam_makes_the_optimizer_step_the_peak(
    given: dict[str, Any], expected: dict[str, Any]
) -> None:
    model = pb.model("llama-2-70b")
    assert model.parameters == given["params"]
    assert recipe("fp32").state_bytes == given["states_bytes"]
    for index, ranks in enumerate(given["gpus"]):
        layout = pb.Layout(dp=ranks, zero=3)
        states = zero_states(model, "fp32", ranks)[3].total_bytes
        assert states / GB == within(expected["states_gb"][index], 1)
        step = predict(model, layout, framework="torch", recipe="fp32", optimizer_kernel="foreach")
        at_the_step = step.walk.peak_of("O")
        assert at_the_step / GB == within(expected["with_foreach_temp_gb"][index], 1)
        fits = at_the_step <= given["gpu_gb"] * GB
        assert fits == expected["fits_before_activations"][index]


@case("mem-12")
def test_sharing_small_gradients_saves_less_than_a_bucket_takes(
    given: dict[str, Any], expected: dict[str, Any]
) -> None:
    _, one, two, _ = zero_states(int(given["params"]), "bf16-fp32master", given["dp"])
    saved = one.total_bytes - two.total_bytes
    assert round(saved / GB, 2) == expected["saved_by_sharding_grads_gb"]
    found = predict("llama-3.2-1b", pb.Layout(dp=given["dp"], zero=2), framework="deepspeed")
    (bucket,) = [t.bytes for t in found.walk.program.templates if t.name == "reduce buckets"]
    assert bucket / GB == expected["one_default_bucket_gb"]
    assert bucket == given["default_bucket_elements"] * given["bucket_bytes"]
    assert (saved > bucket) == expected["zero2_saves"]


@case("mem-25")
def test_states_shrink_with_each_stage_and_peaks_need_not(
    given: dict[str, Any], expected: dict[str, Any]
) -> None:
    model, ranks = pb.model("llama-3.2-1b"), given["dp"]
    _, one, two, three = (state.total_bytes for state in zero_states(model, "bf16-fp32master", ranks))
    assert expected["order_of_static_memory"] == "zero1 >= zero2 >= zero3"
    assert one >= two >= three
    peaks = [
        predict(model, pb.Layout(dp=ranks, zero=zero), framework="deepspeed").peak_bytes for zero in (1, 2, 3)
    ]
    assert (peaks != sorted(peaks, reverse=True)) == expected["peak_can_invert"]
