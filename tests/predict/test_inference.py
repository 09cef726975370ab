from dataclasses import replace

import pytest

import playbook as pb
from playbook.predict.kv_pool import pool_bytes
from playbook.units import GIB

LLAMA = pb.model("llama-3.1-70b")
NODE = pb.cluster("1x8-h100")


def on(layout=None, **serving):
    return pb.inference_memory(LLAMA, pb.Serving(**serving), layout or pb.Layout(tp=8), NODE)


def test_terms_add_up_to_the_three_sums():
    found = on()
    sizes = {row["term"]: row["bytes"] for row in found.terms}
    assert found.reserved_bytes == found.peak_bytes + sizes["reserved_unused"]
    assert found.device_bytes == sum(sizes.values()) == found.reserved_bytes + sizes["context"]
    assert (
        sizes["parameters"] == 17_640_734_720
    )  # (70 553 706 496 - 161 x 8192) / 8 + 161 x 8192, 2 bytes each
    assert sizes["kv_cache"] == 64 * 4608 * 327_680 // 8
    assert found.table["source"].unique().tolist() == ["formula"]


def test_fitting_is_the_pool_holding_the_load():
    for concurrency in (1, 300, 310, 2000):
        found = on(concurrency=concurrency)
        assert found.fits == (found.kv_cache.engine_bytes <= found.pool_bytes)
        assert found.fits == (found.capacity_sequences >= concurrency)


def test_the_pool_is_vllms_subtraction():
    found = on()
    context = (639 + 558) * 2**20  # measured on an H200: context and first communicator
    buffers = 3 * 8 * 2**20
    left = pool_bytes(
        NODE.gpu.memory_bytes, 0.9, found.weights_bytes, found.activation_bytes, context + buffers
    )
    assert found.pool_bytes == int(left)


def test_captured_graphs_leave_the_pool_smaller():
    assert on().pool_bytes - on(graph_bytes=GIB).pool_bytes == GIB


def test_sequences_that_do_not_fit_wait_and_the_note_says_so():
    found = on(pb.Layout(), weights="int4-g128", kv_dtype="fp8")
    assert not found.fits
    assert 0 < found.capacity_sequences < 64
    assert f"{found.capacity_sequences} of 64 sequences fit at once" in found.note


def test_weights_that_do_not_fit_leave_no_pool():
    found = on(pb.Layout())
    assert found.pool_bytes < 0
    assert found.capacity_tokens == found.capacity_sequences == found.longest_sequence == 0
    assert "leave no pool" in found.note


def test_the_default_step_depends_on_the_gpu():
    for gpu, tokens in (("h100", 8192), ("a100", 2048), ("a100-40", 2048)):
        found = pb.inference_memory(pb.model("llama-3.1-8b"), cluster=pb.cluster(f"1x8-{gpu}"))
        assert found.kv_cache.batched == tokens


def test_pipeline_ranks_hold_their_own_layers_and_the_smallest_pool_counts():
    found = on(pb.Layout(tp=2, pp=4))
    assert [kind.count for stage in found.stages for kind in stage.cache.layers] == [20, 20, 20, 20]
    assert found.pool_bytes == min(row["pool_bytes"] for row in found.per_stage)
    assert found.peak_bytes == max(row["peak_bytes"] for row in found.per_stage)
    assert found.worst_rank["pp"] == 3  # the head and its logits


def test_layers_that_do_not_divide_go_to_the_ranks_before_the_last():
    found = pb.inference_memory(LLAMA, layout=pb.Layout(tp=1, pp=3), cluster=NODE)
    assert [stage.cache.layers[0].count for stage in found.stages] == [27, 27, 26]


def test_the_latent_cache_of_tensor_parallel_ranks_is_told():
    node = pb.cluster("1x8-h200")
    model = pb.model("deepseek-v3")
    tensor = pb.inference_memory(model, pb.Serving(weights="fp8-block"), pb.Layout(tp=8), node)
    assert "replicated 8 times: one latent head" in tensor.note
    dealt = pb.inference_memory(model, pb.Serving(weights="fp8-block"), pb.Layout(dp=8, ep=8), node)
    assert dealt.capacity_tokens > 4 * tensor.capacity_tokens  # not 8: attention's weights are copied


def test_layouts_that_cannot_serve_are_refused():
    with pytest.raises(ValueError, match="tp=3 does not divide heads=64.*tp in 1, 2, 4, 8, 16, 32, 64"):
        on(pb.Layout(tp=3))
    with pytest.raises(ValueError, match="zero=3: an engine keeps no gradients"):
        on(pb.Layout(dp=2, zero=3))
    with pytest.raises(ValueError, match="16 ranks but cluster 1x8-h100 has 8 GPUs"):
        on(pb.Layout(tp=16))
    with pytest.raises(ValueError, match=r"ep=2 but llama-3.1-70b has no experts; use ep=1"):
        on(pb.Layout(dp=2, ep=2))
    with pytest.raises(ValueError, match="chunks=2: an engine's rank holds one; use chunks=1"):
        on(pb.Layout(pp=2, schedule="interleaved-1f1b", chunks=2))


def test_the_largest_concurrency_is_what_fit_answers_and_the_next_does_not_fit():
    most = on().largest_concurrency
    assert most == pb.fit(pb.Scenario(LLAMA, layout=pb.Layout(tp=8)), "concurrency", pb.Serving()).value
    assert most <= on().capacity_sequences
    assert on(concurrency=most).fits
    assert not on(concurrency=most + 1).fits
    assert on(pb.Layout()).largest_concurrency == 0


def test_an_engine_takes_its_part_of_the_memory():
    found = on(utilisation=0.5)
    assert found.budget_bytes == NODE.gpu.memory_bytes // 2
    assert found.device_bytes - found.engine_bytes == NODE.gpu.memory_bytes - found.budget_bytes


def test_sequences_end_where_learned_positions_do():
    small = pb.model("gpt2")
    assert pb.inference_memory(small, pb.Serving(prompt=512, output=512)).fits
    refusal = "prompt=513 with 512 more but gpt2 has 1024 learned positions; use prompt=512 or less"
    with pytest.raises(ValueError, match=refusal):
        pb.inference_memory(small, pb.Serving(prompt=513))
    with pytest.raises(ValueError, match="use fewer than 1024 tokens in all"):
        pb.inference_memory(small, pb.Serving(output=1024))


def test_the_text_says_what_fits():
    text = repr(on())
    assert "fits 90% of h100" in text
    assert "the pool holds" in text


def test_every_preset_is_served_on_a_node():
    from playbook.spec import presets

    for name in presets.names("models"):
        found = pb.inference_memory(pb.model(name), replace(pb.Serving(), concurrency=1, prompt=512))
        assert found.peak_bytes > 0
        assert found.device_bytes > found.peak_bytes
