import pytest

import playbook as pb
from playbook.predict.prefill_peak import Chunk, instants, rotary_bytes

CHUNK = Chunk(tokens=1000, rows=10, value=2, gathered=1000)


def found(name, layout=None, chunk=CHUNK):
    return {moment.name: moment for moment in instants(pb.model(name), layout or pb.Layout(), chunk)}


def test_a_dense_layer_is_widest_in_its_feed_forward_part():
    moments = found("llama-3.1-8b")
    assert moments["prefill feed-forward"].bytes == 1000 * (3 * 4096 + 3 * 14_336) * 2
    assert moments["prefill attention"].bytes == 1000 * (3 * 4096 + (64 + 16) * 128) * 2
    assert set(moments) == {"prefill attention", "prefill feed-forward", "head"}


def test_a_log_of_vllm_grew_by_0_92_gib_from_20000_to_29000_tokens():
    long, short = (
        found("llama-3.1-8b", chunk=Chunk(tokens=t, rows=1, value=2, gathered=t)) for t in (29_000, 20_000)
    )
    grown = long["prefill feed-forward"].bytes - short["prefill feed-forward"].bytes
    assert grown / 2**30 == pytest.approx(0.92, abs=0.01)  # vllm-project/vllm issue 10517: 17.06 to 17.98


def test_tensor_parallelism_divides_products_and_copies_the_stream():
    moments = found("llama-3.1-8b", pb.Layout(tp=8))
    assert moments["prefill feed-forward"].bytes == 1000 * (3 * 4096 + 3 * 14_336 // 8) * 2


def test_logits_are_of_sampled_rows_only():
    few, many = (
        found("llama-3.1-8b", chunk=Chunk(tokens=1000, rows=r, value=2, gathered=1000)) for r in (0, 10)
    )
    assert few["head"].bytes == 1000 * 4096 * 2
    assert many["head"].bytes - few["head"].bytes == 10 * 128_256 * 38.5
    assert many["head"].term == "logits"


@pytest.mark.parametrize(
    ("model", "tp", "tokens", "logged"),
    [
        ("llama-3.1-8b", 1, 8192, 1.26),  # vllm-project/vllm pull 10511, Llama 3 8B has the same sizes
        ("llama-3.1-8b", 2, 8192, 1.26),  # the same on two GPUs: logits are whole on each
        ("qwen2.5-7b", 1, 4096, 1.42),  # vllm-project/vllm issue 13882
    ],
)
def test_logged_peaks_of_vllm_with_256_rows(model, tp, tokens, logged):
    chunk = Chunk(tokens=tokens, rows=256, value=2, gathered=tokens)
    moments = found(model, pb.Layout(tp=tp), chunk)
    assert max(moment.bytes for moment in moments.values()) / 2**30 == pytest.approx(logged, rel=0.02)
    assert max(moments, key=lambda name: moments[name].bytes) == "head"


def test_experts_hold_the_rows_of_every_routed_token():
    moments = found("qwen3-30b-a3b")  # h 2048, e 768, 8 of 128 experts, no dense layer
    assert "prefill feed-forward" not in moments
    assert moments["prefill experts"].bytes == 1000 * 3 * 2048 * 2 + 8000 * (2048 + 768) * 2


def test_a_latent_prefill_makes_whole_heads():
    moments = found("deepseek-v3", pb.Layout(tp=8))
    width = 3 * 7168 + 1536 + 512 + 64 + 16 * (2 * 192 + 128 + 2 * 128)
    assert moments["prefill attention"].bytes == 1000 * width * 2


def test_rotary_tables_cover_every_position():
    assert rotary_bytes(pb.model("llama-3.1-8b"), 2) == 131_072 * 128 * 2
    assert rotary_bytes(pb.model("deepseek-v3"), 2) == pb.model("deepseek-v3").max_sequence * 64 * 2
    assert rotary_bytes(pb.model("gpt2"), 2) == 0
