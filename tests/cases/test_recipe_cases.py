"""Users' questions about recipes and adapters, asked through the public API; as in the file about memory."""

from typing import Any

import pytest

import playbook as pb
from playbook.spec import recipe
from tests.cases.train_memory import (
    ASKED,
    GB,
    case,
    predict,
    term,
    within,
)


def test_every_case_about_recipes_is_asked() -> None:
    assert {"mem-14", "mem-15", "mem-17", "mem-18", "mem-19", "mem-20", "mem-24"} <= ASKED


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
