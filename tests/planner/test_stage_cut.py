from dataclasses import replace

import pytest

import playbook as pb
from playbook.predict.layer_costs import LayerCost

# deepseek-ai/DeepSeek-V3, config.json: hidden_size, q_lora_rank, kv_lora_rank, num_attention_heads,
# qk_nope_head_dim, qk_rope_head_dim, v_head_dim; intermediate_size, moe_intermediate_size,
# num_experts_per_tok + n_shared_experts, n_routed_experts, first_k_dense_replace, num_hidden_layers,
# vocab_size.
H, Q, KV, HEADS, NOPE, ROPE, VALUE = 7168, 1536, 512, 128, 128, 64, 128
FFN, EXPERT, ACTIVE, EXPERTS, DENSE, LAYERS, VOCABULARY = 18432, 2048, 8 + 1, 256, 3, 61, 129280

ATTENTION = (
    H * Q + Q * HEADS * (NOPE + ROPE) + H * (KV + ROPE) + KV * HEADS * (NOPE + VALUE) + HEADS * VALUE * H
)
DENSE_FFN, ONE_EXPERT = 3 * H * FFN, 3 * H * EXPERT
ROUTER = H * EXPERTS
EP = 8
TOKENS, FLOPS = 4096, 400e12


def cost(name, active, held, kept=TOKENS * H * 2):
    forward = 2 * active * TOKENS / FLOPS
    return LayerCost(
        name=name,
        forward_s=forward,
        backward_input_s=forward,
        backward_weight_s=forward,
        state_bytes=16 * held,
        activation_bytes=kept,
    )


def deepseek_costs():
    """Products of the weights that a token meets; state of one rank with experts over eight ranks."""
    dense = ATTENTION + DENSE_FFN
    moe = ATTENTION + ROUTER + ACTIVE * ONE_EXPERT
    held = ATTENTION + ROUTER + (EXPERTS // EP + 1) * ONE_EXPERT
    return [
        cost("embedding", 0, H * VOCABULARY),
        *(cost(f"layers.{n}", dense, dense) for n in range(DENSE)),
        *(cost(f"layers.{n}", moe, held) for n in range(DENSE, LAYERS)),
        cost("head", H * VOCABULARY, H * VOCABULARY),
    ]


def deepseek():
    """Any model with as many layers: it gives their number, ranks and order; costs come from the list."""
    layout = pb.Layout(pp=16, stage_layers=(4,) * 13 + (3,) * 3)
    return pb.Scenario(replace(pb.model("llama-3.1-8b"), layers=LAYERS), pb.Workload(global_batch=64), layout)


def llama(pp=4, **layout):
    return pb.Scenario(pb.model("llama-3.2-1b"), pb.Workload(global_batch=8), pb.Layout(pp=pp, **layout))


def test_the_head_takes_layers_from_the_last_stage():
    cut = pb.cut_stages(llama())
    assert sum(cut.stage_layers) == 16
    assert cut.equal_layers == (4, 4, 4, 4)
    assert cut.stage_layers[-1] < 4
    assert max(cut.seconds) < max(cut.equal_seconds)
    assert cut.equal_seconds.index(max(cut.equal_seconds)) == 3
    again = pb.Layout(pp=4, stage_layers=cut.stage_layers)
    assert again.stage_layers == cut.stage_layers


def test_words_say_which_stage_was_slow_and_why():
    text = repr(pb.cut_stages(llama()))
    assert "equal cut: slowest stage" in text
    assert "(stage 3, with the head); this cut" in text
    assert "predicted, one micro-batch; simulated step " in text


def test_no_layer_is_lost_where_stages_do_not_divide_them():
    # Megatron-LM issue 468: 80 layers on 16 ranks with two chunks, of which 64 were trained.
    layout = pb.Layout(pp=16, schedule="interleaved-1f1b", chunks=2, stage_layers=(3,) * 16 + (2,) * 16)
    cut = pb.cut_stages(pb.Scenario(pb.model("llama-3.1-70b"), pb.Workload(global_batch=16), layout))
    assert len(cut.stage_layers) == 32
    assert sum(cut.stage_layers) == sum(cut.equal_layers) == 80
    assert min(cut.stage_layers) >= 1
    assert cut.proven


def test_a_mixture_of_experts_is_cut_by_costs_that_are_given():
    cut = pb.cut_stages(deepseek(), layer_costs=deepseek_costs())
    # Nine experts of 2 048 are as wide as the dense 18 432: all layers cost about the same, the head 1.6 of
    # them. 61 layers over 16 stages want four on most, and the head's stage carries two: 15 · 4 + 2 ≥ 61.
    moe = 3 * 2 * (ATTENTION + ROUTER + ACTIVE * ONE_EXPERT) * TOKENS / FLOPS
    assert sum(cut.stage_layers) == LAYERS
    assert cut.equal_layers == (4,) * 13 + (3,) * 3
    assert max(cut.seconds) == pytest.approx(4 * moe)
    assert cut.stage_layers[-1] <= 2
    head = 3 * 2 * H * VOCABULARY * TOKENS / FLOPS
    assert max(cut.equal_seconds) == pytest.approx(3 * moe + head)


def test_under_a_cap_the_bytes_of_every_rank_are_kept():
    free = pb.cut_stages(deepseek(), layer_costs=deepseek_costs())
    # Four MoE layers fit from rank 4 on, where 12 micro-batches are alive; on ranks 1 to 3 only three do.
    # Rank 0 takes more, since its first three are dense and hold less than 33 experts.
    cap = 108e9
    cut = pb.cut_stages(deepseek(), layer_costs=deepseek_costs(), memory_cap_bytes=cap)
    assert max(free.bytes) > cap >= max(cut.bytes)
    assert cut.stage_layers[1:4] == (3, 3, 3)
    assert sum(cut.stage_layers) == LAYERS
    assert max(cut.seconds) > max(free.seconds)
    assert "with the head) and 108.6\N{THIN SPACE}GB where 108.0\N{THIN SPACE}GB fit; this cut" in repr(cut)


def test_bytes_are_state_and_the_activations_in_flight():
    costs = [cost(f"layers.{n}", 10**9, 100, kept=1000) for n in range(16)]
    cut = pb.cut_stages(llama(), layer_costs=costs)
    # 1F1B with eight micro-batches on four ranks: 4, 3, 2, 1 in flight, four layers each.
    assert cut.bytes == tuple(4 * (16 * 100 + live * 1000) for live in (4, 3, 2, 1))


def test_two_directions_share_the_layers_of_mirrored_ranks():
    cut = pb.cut_stages(llama(schedule="dualpipe"))
    assert cut.proven
    assert cut.rank_seconds == pytest.approx(cut.rank_seconds[::-1])
    assert "slowest rank" in repr(cut)


def test_the_table_has_a_row_a_stage():
    cut = pb.cut_stages(llama(schedule="zbv", chunks=2, pp=2))
    table = cut.table
    assert table["rank"].tolist() == [0, 1, 1, 0]
    assert table["layers"].tolist() == list(cut.stage_layers)
    assert table["first_layer"].tolist()[1:] == table["layers"].cumsum().tolist()[:-1]


def test_a_cap_that_nothing_keeps_names_rank_and_excess():
    with pytest.raises(
        ValueError,
        match=r"no cut of 16 layers into 4 stages fits; .* rank \d holds .* over; "
        r"use memory_cap_bytes=\d+ or more",
    ):
        pb.cut_stages(llama(), memory_cap_bytes=1e9)


def test_the_smallest_cap_that_it_names_works():
    with pytest.raises(ValueError) as caught:
        pb.cut_stages(llama(), memory_cap_bytes=1e9)
    least = int(str(caught.value).split("use memory_cap_bytes=")[1].split(" or")[0])
    assert max(pb.cut_stages(llama(), memory_cap_bytes=least).bytes) <= least


@pytest.mark.parametrize(
    ("schedule", "chunks"), [("1f1b", 1), ("zb-h1", 1), ("zbv", 2), ("dualpipe", 1), ("interleaved-1f1b", 2)]
)
def test_bytes_and_the_cap_are_those_of_the_memory_prediction(schedule, chunks):
    s = llama(schedule=schedule, chunks=chunks)
    free = pb.cut_stages(s)
    cap = (max(free.bytes) + min(free.bytes)) / 2
    try:
        cut = pb.cut_stages(s, memory_cap_bytes=cap)
    except ValueError as none:
        cap = int(str(none).split("use memory_cap_bytes=")[1].split(" or")[0])
        cut = pb.cut_stages(s, memory_cap_bytes=cap)
    asked = replace(s, layout=replace(s.layout, stage_layers=cut.stage_layers))
    peaks = tuple(pb.training_memory(asked, rank=rank).walk.peak_bytes for rank in range(4))
    assert cut.bytes == peaks
    assert max(peaks) <= cap


def test_words_say_when_the_whole_step_gets_slower():
    # 32 layers on four ranks of two directions: the slowest rank gets faster, and the others wait longer.
    layout = pb.Layout(pp=4, schedule="dualpipe")
    cut = pb.cut_stages(pb.Scenario(pb.model("llama-3.1-8b"), pb.Workload(global_batch=8), layout))
    assert max(cut.rank_seconds) < max(cut.equal_rank_seconds)
    assert cut.step_seconds > cut.equal_step_seconds
    assert "but the simulated step gets slower, " in repr(cut)
    assert repr(cut).endswith("keep the equal cut)")


def test_given_costs_are_simulated_without_messages():
    costs = [cost(f"layers.{n}", 10**9, 100) for n in range(16)]
    cut = pb.cut_stages(llama(), layer_costs=costs)
    # 1F1B, equal stages: (m + p − 1)(F + B), m = 8, p = 4, four layers a stage.
    assert cut.step_seconds == pytest.approx(11 * 4 * costs[0].seconds)
    assert "under either" in repr(cut)


def test_what_is_no_scenario_is_refused_in_words():
    with pytest.raises(TypeError, match="s='llama' must be a Scenario; use pb.Scenario"):
        pb.cut_stages("llama")


def test_costs_of_another_model_are_refused():
    with pytest.raises(ValueError, match="layer_costs has 61 layers beside its ends but the model has 16"):
        pb.cut_stages(llama(), layer_costs=deepseek_costs())
