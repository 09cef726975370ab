"""Users' questions about training memory, asked through the public API and the command line.

Questions and answers are those of `tests/data/cases_train_memory.json`, each with its source; no expected
value is computed here. What a case leaves open is asked with a named assumption, listed in `OPEN`; what its
inputs do not determine is in `NOT_ASKED`.
"""

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import playbook as pb
from playbook.cli import run_command
from playbook.predict.memory import TrainingMemory
from playbook.predict.zero import zero_states
from playbook.spec import recipe

GB, MB, GIB = 10**9, 10**6, 2**30
FILE = Path(__file__).resolve().parents[1] / "data" / "cases_train_memory.json"
CASES: dict[str, dict[str, Any]] = {case["id"]: case for case in json.loads(FILE.read_text("utf-8"))}
ASKED: set[str] = set()

OPEN = {
    "mem-04": "28 layers, 16 heads of 256 and 16 384 features of GPT-J; one token, so that states are all; "
    "2 048 tokens for what does not shrink",
    "mem-05": "allocations one by one as Hugging Face's code makes them: those of Qwen3-8B, whose vocabulary "
    "is the same",
    "mem-08": "the ratio holds for a layer, so that of GPT-3's sizes with a·s/h = 16 is asked",
    "mem-09": "the parts of attention that the note names: input, norm output, q, k, v and the core's output",
    "mem-11": "the parameters are those of Llama 2 70B; 8 tokens, so that the step's end is seen alone",
    "mem-12": "the bucket is that of a model with more parameters than it has elements",
    "mem-14": "32 heads, as the model's card says",
    "mem-17": "16 heads of 80 in a vision layer; 32 heads of 128 and 8 for keys in a text layer; the base is "
    "given, since images need more than layers",
    "mem-20": "8-bit moments of the token table too, as the expected 2 bytes a parameter say",
    "mem-25": "Llama 3.2 1B, 8 tokens, DeepSpeed's buffers: gathered weights of stage 3 turn the order round",
    "mem-24": "adapters of rank 8 on q and v: 0.04 % of the model",
}
"""What a case does not say, and how it is asked nevertheless."""

NOT_ASKED = {
    "mem-22": "the model, the micro-batch and the split of the three stages that were measured",
}
"""Cases whose inputs do not determine a prediction, with what is missing."""


def case(number: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Hand a test its case, and note that the case is asked."""
    ASKED.add(number)
    return pytest.mark.parametrize(
        ("given", "expected"), [(CASES[number]["input"], CASES[number]["expected"])], ids=[number]
    )


def within(expected: float, per_cent: float) -> Any:
    """A number up to a tolerance in per cent."""
    return pytest.approx(expected, rel=per_cent / 100)


def predict(model: pb.Model | str, layout: pb.Layout | None = None, **more: Any) -> TrainingMemory:
    """Memory of a model, a preset's if it is a name; `framework` or fields of the workload."""
    shape = pb.model(model) if isinstance(model, str) else model
    framework = more.pop("framework", "textbook")
    work = pb.Workload(**{"sequence": 8, **more})
    return pb.training_memory(pb.Scenario(shape, work, layout or pb.Layout(), framework=framework))


def term(found: Any, name: str) -> int:
    """Bytes of one term at the peak."""
    return {row["term"]: row["bytes"] for row in found.terms}[name]


def command(line: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Run a command with `--json` and return its object."""
    assert run_command(shlex.split(f"{line} --json")) == 0
    return json.loads(capsys.readouterr().out)


def test_every_case_of_the_topic_is_asked_or_says_what_is_missing() -> None:
    assert len(CASES) == 15
    assert set(CASES) == ASKED | set(NOT_ASKED)
    assert not ASKED & set(NOT_ASKED)
    assert set(OPEN) <= ASKED
    assert all(entry["source"] for entry in CASES.values())


GPT_J = pb.Model(
    name="gpt-j-6b",
    family="gpt2",
    layers=28,
    hidden=4096,
    heads=16,
    kv_heads=16,
    head_dim=256,
    ffn=16384,
    vocabulary=50400,
    gated=False,
    norm="layer",
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
    def gpt(layers: int) -> pb.Model:
        return pb.Model(
            name="gpt",
            family="gpt2",
            layers=layers,
            hidden=12288,
            heads=96,
            kv_heads=96,
            head_dim=128,
            ffn=49152,
            vocabulary=64,
            gated=False,
            norm="layer",
            max_sequence=2048,
        )

    layout = pb.Layout(tp=8, sequence_parallel=True)

    def kept(**work: Any) -> int:
        eight, one = (term(predict(gpt(n), layout, sequence=2048, **work), "activations") for n in (9, 1))
        return eight - one  # what eight layers add; one is alive again where it is recomputed

    assert given["a_s_over_h"] == gpt(1).heads * 2048 / gpt(1).hidden
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
    gpt = pb.Model(
        name="gpt",
        family="gpt2",
        layers=1,
        hidden=given["h"],
        heads=given["heads"],
        kv_heads=given["heads"],
        head_dim=256,
        ffn=32768,
        vocabulary=64,
        gated=False,
        norm="layer",
        max_sequence=4096,
    )

    def kept(attention: str) -> dict[str, int]:
        work = pb.Workload(sequence=given["s"], micro_batch=given["b"], attention=attention)
        return {t.name: int(t.bytes) for t in pb.program(pb.Scenario(gpt, work)).templates}

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


@case("mem-14")
def test_the_dtype_of_what_is_not_quantised_tells_the_two_sizes_apart(
    given: dict[str, Any], expected: dict[str, Any]
) -> None:
    llama = pb.Model(
        name="open-llama-3b",
        family="llama",
        layers=26,
        hidden=3200,
        heads=32,
        kv_heads=32,
        head_dim=100,
        ffn=8640,
        vocabulary=32000,
        max_sequence=2048,
    )
    every = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    rows = pb.adapters(llama, pb.Lora(rank=1, targets=every)).rows
    assert sum(row["count"] * row["inputs"] * row["outputs"] for row in rows) == expected["linear_params"]
    assert llama.parameters == expected["total_params"]
    for tables, size in (("fp32", "gb_if_tables_fp32"), ("bf16", "gb_if_tables_fp16")):
        lora = pb.Lora(rank=1, targets=("q_proj",), tables=tables)
        assert term(predict(llama, recipe="qlora", lora=lora), "parameters") / GB == within(expected[size], 2)


@case("mem-15")
def test_qlora_saves_at_most_what_the_weights_shrink(given: dict[str, Any], expected: dict[str, Any]) -> None:
    lora, qlora = (predict(given["config"], recipe=name) for name in ("lora", "qlora"))
    whole, packed = term(lora, "parameters"), term(qlora, "parameters")
    assert whole / GB == within(expected["lora_weights_gb"], 1)
    assert packed / GB == within(expected["qlora_weights_gb"], 1)
    assert (whole - packed) / GB == within(expected["max_saving_gb"], 1)
    assert any("widened" in tensor.name for tensor in qlora.walk.program.templates)


@case("mem-17")
def test_names_match_in_the_vision_tower_too(given: dict[str, Any], expected: dict[str, Any]) -> None:
    common = {"family": "llama", "layers": 40, "vocabulary": 128256, "max_sequence": 4096}
    text = pb.Model(name="text", hidden=4096, heads=32, kv_heads=8, head_dim=128, ffn=14336, **common)
    vision = pb.Model(name="vision", hidden=1280, heads=16, kv_heads=16, head_dim=80, ffn=5120, **common)
    found = pb.adapters((text, vision), pb.Lora(rank=given["r"], targets=tuple(given["targets"])))
    assert found.of("text") == expected["text_adapters"]
    assert found.of("vision") == expected["vision_adapters"]
    assert found.trainable == expected["trainable"] == given["reported_trainable"]
    assert expected["base"] + found.trainable == given["reported_all"]


@case("mem-18")
def test_adapters_on_every_projection(given: dict[str, Any], expected: dict[str, Any]) -> None:
    targets = tuple(f"{name}_proj" for name in given["targets"].split(","))
    found = pb.adapters(pb.model(given["config"]), pb.Lora(rank=given["r"], targets=targets))
    assert found.trainable == expected["trainable"]
    assert round(found.percent, 3) == expected["percent"]


@case("mem-19")
@pytest.mark.parametrize(("index", "name"), [(0, "fp32"), (1, "fp32-bf16states")])
def test_the_dtype_of_adams_moments(
    given: dict[str, Any], expected: dict[str, Any], index: int, name: str
) -> None:
    found = term(predict(given["config"], recipe=name), "optimizer")
    assert round(found / GB, 2) == expected["moments_gb"][index]
    assert recipe(name).state_bytes == expected["bytes_per_param_total_fp32_params_grads"][index]


@case("mem-20")
def test_moments_in_8_bits(given: dict[str, Any], expected: dict[str, Any]) -> None:
    wide, packed = expected["moments_gb"]
    assert term(predict(given["config"]), "optimizer") / GB == within(wide, 2)
    assert term(predict(given["config"], recipe="adam8bit-tables"), "optimizer") / GB == within(packed, 2)


@case("mem-24")
@pytest.mark.parametrize(("name", "size"), [("fsdp2-mixed", "frozen_base_gb_per_gpu_fp32"), ("bf16", "bf16")])
def test_the_storage_dtype_of_frozen_weights(
    given: dict[str, Any], expected: dict[str, Any], name: str, size: str
) -> None:
    model = pb.model("llama-3.1-8b")
    assert model.parameters == given["params"]
    layout = pb.Layout(dp=given["gpus"], zero=3)
    found = predict(model, layout, recipe=name, lora=pb.Lora(rank=8))
    assert term(found, "parameters") / GB == within(expected[size], 1)


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
