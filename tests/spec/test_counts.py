from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import playbook as pb
from playbook.spec import Mla, Moe

NAMES = ("deepseek-v3", "llama-4-maverick-text", "gemma-3-1b", "gpt-oss-120b", "gpt2", "llama-3.2-1b")


@st.composite
def models(draw):
    layers, heads = draw(st.integers(1, 9)), draw(st.sampled_from([2, 4, 6]))
    moe = Moe(
        experts=draw(st.integers(2, 6)),
        active=draw(st.integers(1, 2)),
        ffn=draw(st.integers(1, 9)),
        shared_ffn=draw(st.integers(0, 5)),
        first_dense=draw(st.integers(0, layers)),
        every=draw(st.integers(1, 3)),
        expert_bias=draw(st.booleans()),
    )
    mla = Mla(query_rank=draw(st.none() | st.just(5)), kv_rank=6, nope_dim=3, rope_dim=2, value_dim=4)
    latent = draw(st.booleans())
    return pb.Model(
        name="drawn",
        family="llama",
        layers=layers,
        hidden=draw(st.integers(1, 20)),
        heads=heads,
        kv_heads=draw(st.sampled_from([1, 2, heads])),
        head_dim=5,
        ffn=draw(st.integers(1, 20)),
        vocabulary=draw(st.integers(1, 50)),
        max_sequence=32,
        norm=draw(st.sampled_from(["rms", "layer", "plain"])),
        tied=draw(st.booleans()),
        gated=draw(st.booleans()),
        positions=draw(st.sampled_from([0, 32])),
        sandwich=draw(st.booleans()),
        moe=draw(st.sampled_from([None, moe])),
        mla=mla if latent else None,
    )


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_stages_add_up_to_the_model_however_it_is_cut(data):
    model = data.draw(models())
    ends = sorted(data.draw(st.lists(st.integers(0, model.layers), max_size=5)))
    cuts = [0, *ends, model.layers]
    split = [end - start for start, end in zip(cuts, cuts[1:], strict=False)]
    stages = model.stage_parameters(split)
    assert sum(stages) == model.parameters
    copies = sum(model.stage_parameters(split, copies=True)) - model.parameters
    assert copies == (model.embedding if model.tied and len(split) > 1 else 0)


@settings(max_examples=30, deadline=None)
@given(models())
def test_every_parameter_is_named_once(model):
    names = [weight.name for weight in (*model.embedding_parameters(), *model.head_parameters())]
    for layer in range(model.layers):
        names += [f"layers.{layer}.{weight.name}" for weight in model.block_parameters(layer)]
        assert model.block_parameters(model.kind_of(layer)) == model.block_parameters(layer)
    assert len(names) == len(set(names))


@pytest.mark.parametrize("name", NAMES)
def test_layers_and_ends_add_up_to_the_model(name):
    model = pb.model(name)
    ends = (*model.embedding_parameters(), *model.head_parameters())
    assert sum(model.per_layer) + sum(weight.numel for weight in ends) == model.parameters
    assert model.stage_parameters((model.layers,)) == (model.parameters,)


def test_layers_of_deepseek_v3_are_three_dense_and_58_with_experts():
    # The dense ones: attention 187 107 328, 3 · 7168 · 18432 = 396 361 728, two norms of 7168.
    model = pb.model("deepseek-v3")
    assert model.kinds == (0, 3)
    assert [model.kind_of(layer) for layer in (0, 2, 3, 60)] == [0, 0, 3, 3]
    assert model.per_layer[:4] == (583_483_392, 583_483_392, 583_483_392, 11_507_286_016)
    assert model.layer_parameters == 11_507_286_016


def test_every_second_layer_of_maverick_has_experts_and_the_first_is_dense():
    model = pb.model("llama-4-maverick-text")
    assert model.kinds == (0, 1)
    assert [model.kind_of(layer) for layer in range(4)] == [0, 1, 0, 1]


def test_stages_of_deepseek_v3_are_unequal_where_their_layers_are_not():
    # vllm-project/vllm issue 12895: 20, 20 and 21 layers.
    stages = pb.model("deepseek-v3").stage_parameters((20, 20, 21))
    assert stages == (198_300_991_488, 230_145_720_320, 242_579_692_544)


def test_a_tied_table_is_copied_to_the_last_stage():
    model = pb.model("llama-3.2-1b")
    alone, shared = model.stage_parameters((8, 8)), model.stage_parameters((8, 8), copies=True)
    assert shared == (alone[0], alone[1] + 128_256 * 2048)
    assert model.stage_parameters((16,), copies=True) == (model.parameters,)


@pytest.mark.parametrize("split", [(), (20, 20, 20), (61, 1)])
def test_stages_that_do_not_add_up_are_refused(split):
    with pytest.raises(ValueError, match=r"stage_layers add up to .* but deepseek-v3 has 61 layers"):
        pb.model("deepseek-v3").stage_parameters(split)


def test_windows_of_gemma_3_leave_every_sixth_layer_whole():
    windows = pb.model("gemma-3-27b-text").windows
    assert windows[:7] == (1024, 1024, 1024, 1024, 1024, None, 1024)
    assert sum(window is None for window in windows) == 10


def test_latent_attention_caches_its_vector_and_the_rotary_key():
    # 512 + 64 values in each of 61 layers, two bytes each.
    model = pb.model("deepseek-v3")
    assert model.kv_values_per_token(0) == 576
    assert model.kv_bytes_per_token(2) == 61 * 576 * 2
    assert pb.model("llama-3.1-8b").kv_values_per_token(31) == 2 * 8 * 128


def test_all_experts_active_is_a_dense_count():
    model = pb.model("mixtral-8x7b")
    assert model.moe is not None
    every = replace(model, moe=replace(model.moe, active=8))
    assert every.active == every.parameters == model.parameters


def test_a_file_stores_a_tied_head_and_multi_token_modules_besides():
    assert pb.model("llama-3.1-8b").stored_parameters == pb.model("llama-3.1-8b").parameters
    assert pb.model("qwen3-0.6b").stored_parameters == 751_632_384  # its file on the hub
    kimi = pb.model("kimi-k2")  # no modules, but 384 balancing numbers in each of 60 layers
    assert kimi.stored_parameters - kimi.parameters == kimi.balancing_numbers == 60 * 384
