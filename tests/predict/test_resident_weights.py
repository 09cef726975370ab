import pytest

import playbook as pb
from playbook.predict.prefill_peak import rotary_bytes
from playbook.predict.resident_weights import resident_weights
from playbook.spec.formats import weight_format
from playbook.units import GIB


def weights(name, form, layout=None, **stage):
    return resident_weights(pb.model(name), weight_format(form), layout or pb.Layout(), **stage)


def test_sixteen_bits_are_two_bytes_of_every_parameter():
    assert weights("llama-3.1-8b", "bf16").bytes == 2 * 8_030_261_248
    assert weights("llama-3.1-8b", "fp32").bytes == 4 * 8_030_261_248


def test_vllm_logs_weights_and_rotary_tables_to_four_decimals():
    # vllm-project/vllm issue 18322: "Model loading took 14.9889 GiB" for Llama 3.1 8B.
    tables = rotary_bytes(pb.model("llama-3.1-8b"), 2)
    assert (weights("llama-3.1-8b", "bf16").bytes + tables) / GIB == pytest.approx(14.9889, abs=2e-4)


@pytest.mark.parametrize(("name", "gigabytes"), [("8b", 16), ("70b", 140), ("405b", 810)])
def test_hugging_faces_table_of_fp16_weights(name, gigabytes):
    assert weights(f"llama-3.1-{name}", "fp16").bytes / 1e9 == pytest.approx(gigabytes, rel=0.01)


@pytest.mark.parametrize(
    ("name", "layers", "hidden", "published"),
    [("8b", 32, 4096, (8, 4)), ("70b", 80, 8192, (70, 35)), ("405b", 126, 16_384, (405, 203))],
)
@pytest.mark.parametrize("form", ["fp8", "int4"])
def test_hugging_faces_table_of_quantised_weights_leaves_out_tables_and_scales(
    name, layers, hidden, published, form
):
    bits, gigabytes = (8, published[0]) if form == "fp8" else (4, published[1])
    found = weights(f"llama-3.1-{name}", form)
    stay_wide = (
        2 * 128_256 * hidden + (2 * layers + 1) * hidden
    )  # two tables, two norms a layer, the last norm
    assert found.other == stay_wide
    wider = stay_wide * (2 - bits / 8)
    scales = found.bytes - (found.quantised * bits / 8 + found.other * 2)
    assert scales > 0
    assert (found.bytes - wider - scales) / 1e9 == pytest.approx(gigabytes, rel=0.01)


def test_a_scale_for_each_row_is_counted():
    rows = 32 * (4096 + 1024 + 1024 + 4096 + 14_336 + 14_336 + 4096)
    assert weights("llama-3.1-8b", "fp8").rows == rows


def test_gpt_oss_keeps_only_its_experts_in_four_bits():
    # OpenAI's model card of gpt-oss (2025), table 1: a checkpoint of 60.8 GiB
    assert weights("gpt-oss-120b", "mxfp4").bytes / GIB == pytest.approx(60.8, rel=0.003)


def test_deepseek_v3_in_fp8_blocks():
    # DeepSeek-V3's README: 671B parameters in the main model; embedding and head stay in BF16.
    found = weights("deepseek-v3", "fp8-block")
    assert found.bytes / 1e9 == pytest.approx(671.03 + 2 * 129_280 * 7168 / 1e9, rel=0.001)


def test_tensor_parallel_ranks_share_projections_and_copy_norms():
    found = weights("llama-3.1-8b", "bf16", pb.Layout(tp=8))
    copied = 65 * 4096
    assert found.bytes == 2 * ((8_030_261_248 - copied) // 8 + copied)


def test_a_key_head_is_never_cut():
    sixteen, eight = (weights("llama-3.1-8b", "bf16", pb.Layout(tp=tp)) for tp in (16, 8))
    keys = 2 * 32 * 128 * 4096  # one head of keys and of values in each layer, whole on either
    assert sixteen.quantised - keys == (eight.quantised - keys) // 2


def test_experts_are_split_like_projections_unless_ep_deals_them_out():
    model = pb.model("qwen3-30b-a3b")
    routed = 48 * 128 * 3 * 2048 * 768
    whole = weights("qwen3-30b-a3b", "bf16")
    split = weights("qwen3-30b-a3b", "bf16", pb.Layout(tp=2))
    dealt = weights("qwen3-30b-a3b", "bf16", pb.Layout(dp=8, ep=8))
    assert whole.bytes == 2 * model.parameters
    assert dealt.bytes == 2 * (model.parameters - routed + routed // 8)
    assert split.bytes < whole.bytes / 2 * 1.001


def test_stages_add_up_and_a_tied_table_is_held_twice():
    layers = (8, 8, 8, 8)
    stages = [weights("llama-3.1-8b", "bf16", stage=n, stage_layers=layers).bytes for n in range(4)]
    assert sum(stages) == 2 * 8_030_261_248
    tied = pb.model("llama-3.2-1b")
    both = [weights("llama-3.2-1b", "bf16", stage=n, stage_layers=(8, 8)).bytes for n in range(2)]
    assert sum(both) == 2 * (tied.parameters + 128_256 * 2048)


def test_the_formula_shows_values_and_bits():
    assert weights("llama-3.1-8b", "bf16").formula == "8030261248 values x 2 bytes"
    assert "values x 4.156 bits in int4-g128" in weights("llama-3.1-8b", "int4-g128").formula
