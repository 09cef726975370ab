import pytest

import playbook as pb
from playbook.spec import Model

SMALL = Model(
    name="small",
    family="llama",
    layers=2,
    hidden=8,
    heads=2,
    kv_heads=1,
    head_dim=4,
    ffn=16,
    vocabulary=10,
    max_sequence=64,
)


def with_window(**changed):
    return Model(**{**SMALL.to_dict(), **changed})


def test_6n_and_palms_attention_term_of_llama_8b():
    # N = 8 030 261 248 − 128256 · 4096; 12 · L · H · Q · T = 12 · 32 · 32 · 128 · 8192.
    flops = pb.flops_per_token(pb.model("llama-3.1-8b"), 8192)
    assert flops.weights == 7_504_924_672
    assert flops.training(causal=False) == 6 * 7_504_924_672 + 12 * 32 * 32 * 128 * 8192
    assert flops.training() == 6 * 7_504_924_672 + 6 * 32 * 32 * 128 * 8192
    assert flops.forward() * 3 == flops.training()


def test_kaplan_counts_no_tables_and_others_both():
    # GPT-2: tables 50257 · 768, positions 1024 · 768 stay; a tied table is the head, so N has it.
    flops = pb.flops_per_token(pb.model("gpt2"))
    assert flops.sequence == 1024
    assert flops.weights == flops.weights_with_table == 124_439_808
    assert flops.weights_without_tables == 124_439_808 - 50_257 * 768


def test_experts_count_where_they_are_active():
    # Published: 37 billion active of 671; without the input table 36.6.
    assert pb.flops_per_token(pb.model("deepseek-v3"), 1).weights == 36_625_603_584


def test_latent_attention_multiplies_keys_of_192_and_values_of_128_features():
    flops = pb.flops_per_token(pb.model("deepseek-v3"), 1000)
    assert flops.attention == 61 * 2 * 1000 * 128 * (192 + 128)
    assert flops.attention_causal == flops.attention // 2


def test_a_window_leaves_a_band_and_the_triangle_at_its_start():
    # 8 tokens, window 4: keys 1, 2, 3, 4, 4, 4, 4, 4 are 26 of 32 in the band; half the diagonal counts: 24.
    whole = pb.flops_per_token(with_window(window=None), 8)
    banded = pb.flops_per_token(with_window(window=4), 8)
    each = 2 * 2 * (2 * 4)  # scores and values, two FLOPs, two heads of four
    assert whole.attention == 2 * each * 8
    assert banded.attention == 2 * each * 4
    assert banded.attention_causal == 2 * each * 3
    assert pb.flops_per_token(with_window(window=99), 8) == whole


def test_chunks_are_short_sequences():
    chunked = pb.flops_per_token(with_window(window=4, chunked=True), 8)
    assert chunked.attention_causal == pb.flops_per_token(SMALL, 4).attention_causal


def test_each_convention_has_its_name_and_formula():
    rows = {name: (formula, value) for name, formula, value in pb.flops_per_token(SMALL, 8).conventions()}
    assert rows["forward"][0] == "2N"
    assert rows["training"] == ("6N", 3 * rows["forward"][1])
    assert rows["training_attention_whole"][1] - rows["training"][1] == 3 * 2 * 32 * 8


def test_a_sequence_must_be_a_number():
    with pytest.raises(ValueError, match="sequence=0 must be at least 1"):
        pb.flops_per_token(SMALL, 0)


def test_products_of_the_reference_transformer_are_those_that_torch_counts():
    torch = pytest.importorskip("torch")
    from torch.utils.flop_counter import FlopCounterMode

    from playbook.models.transformer import Transformer

    model = pb.model("toy-15m")
    with torch.device("meta"):
        module, tokens = Transformer(model), torch.zeros(1, 64, dtype=torch.int64)
    with FlopCounterMode(display=False) as counter:
        module(tokens)
    flops, norms = pb.flops_per_token(model, 64), 13 * 384  # norms are weights, and no products
    assert counter.get_total_flops() == 64 * (flops.forward(causal=False) - 2 * norms)


@pytest.mark.parametrize(("dense", "counted"), [(4, 8_257_536), (1, 7_471_104)])
def test_products_of_latent_attention_and_experts_are_those_that_torch_counts(dense, counted):
    # torch 2.13.0's FlopCounterMode over DeepseekV3ForCausalLM of transformers 5.24.0, attention and experts
    # "eager", one sequence of 32: four layers of this configuration, all dense, then three with experts.
    keys = {
        "model_type": "deepseek_v3",
        "hidden_size": 64,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "intermediate_size": 96,
        "vocab_size": 100,
        "max_position_embeddings": 128,
        "n_routed_experts": 8,
        "num_experts_per_tok": 2,
        "n_shared_experts": 1,
        "moe_intermediate_size": 24,
        "first_k_dense_replace": dense,
        "q_lora_rank": 20,
        "kv_lora_rank": 16,
        "qk_nope_head_dim": 12,
        "qk_rope_head_dim": 8,
        "v_head_dim": 10,
    }
    norms = 4 * (64 + 64 + 20 + 16) + 64
    flops = pb.flops_per_token(pb.model(keys), 32)
    assert 32 * (flops.forward(causal=False) - 2 * norms) == counted
