"""DeepSpeed's accounting: state by ZeRO stage, buckets of its defaults, refusals."""

import pytest

import playbook as pb
from playbook.predict.stages import blocks_of, context

P = 8_030_261_248


def scenario(recipe="bf16-fp32master", recompute="full", gradient_sync="every", batch=None, **layout):
    work = pb.Workload(
        sequence=4096, recipe=recipe, recompute=recompute, gradient_sync=gradient_sync, global_batch=batch
    )
    return pb.Scenario(pb.model("llama-3.1-8b"), work, pb.Layout(**layout), framework="deepspeed")


@pytest.mark.parametrize(
    ("stage", "each"), [(0, 16), (1, 4 + 12 / 8), (2, 2 + 14 / 8), (3, 16 / 8)], ids=["0", "1", "2", "3"]
)
def test_state_of_eight_ranks_is_that_of_the_zero_paper(stage, each):
    state = pb.training_memory(scenario(dp=8, zero=stage)).walk.state
    held = sum(state[term] for term in ("parameters", "gradients", "master_weights", "optimizer"))
    assert held == pytest.approx(each * P, rel=1e-3)


def named(s):
    return {t.name: t.bytes for block in blocks_of(s, 0, context(s)) for t in block.tensors}


def test_stages_1_and_2_have_a_bucket_to_reduce_and_one_to_gather():
    for stage in (1, 2):
        found = named(scenario(dp=8, zero=stage))
        assert found["reduce buckets"] == 2 * 500_000_000
        assert found["gather bucket"] == 2 * 500_000_000


def test_stage_3_has_two_buckets_and_keeps_a_billion_weights_gathered():
    found = named(scenario(dp=8, zero=3))
    assert found["reduce buckets"] == 2 * 2 * 500_000_000
    assert found["live weights"] == 2 * 1_000_000_000
    assert found["prefetched weights"] == 2 * 50_000_000


def test_no_bucket_is_larger_than_the_model():
    s = pb.Scenario(
        pb.model("toy-15m"), pb.Workload(sequence=64), pb.Layout(dp=2, zero=2), framework="deepspeed"
    )
    assert named(s)["reduce buckets"] == 2 * s.model.parameters


def test_stage_3_takes_more_than_stage_2_where_its_buffers_outweigh_what_it_shares():
    """Issue 5305: a small model on two ranks, where gathered weights and a second bucket cost more."""
    work = pb.Workload(sequence=256, recompute="full")
    peaks = [
        pb.training_memory(
            pb.Scenario(pb.model("llama-3.2-1b"), work, pb.Layout(dp=2, zero=stage), framework="deepspeed")
        ).peak_bytes
        for stage in (2, 3)
    ]
    assert peaks[1] > peaks[0]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"tp": 2}, "tp=2.*use tp=1, or framework=.*'megatron'"),
        ({"pp": 2, "dp": 2, "zero": 2}, "pp=2 with zero=2.*use zero=1, or pp=1"),
        ({"pp": 2, "schedule": "gpipe"}, "schedule='gpipe'.*use schedule='1f1b'"),
        (
            {"dp": 8, "zero": 2, "gradient_sync": "last", "batch": 32},
            "gradient_sync='last' with zero=2.*use gradient_sync='every', or zero=1",
        ),
        (
            {"dp": 8, "zero": 3, "gradient_sync": "last", "batch": 32},
            "gradient_sync='last' with zero=3.*use gradient_sync='every', or zero=1",
        ),
        ({"recipe": "fsdp2-mixed"}, "recipe='fsdp2-mixed'.*use one of bf16-fp32master"),
    ],
)
def test_what_deepspeed_does_not_do_is_refused_with_what_works(given, words):
    with pytest.raises(ValueError, match=words):
        pb.training_memory(scenario(**given))


def test_gradients_may_be_reduced_last_where_they_are_whole_or_there_is_one_micro_batch():
    """Two bytes of each parameter under stage 1; with one micro-batch under stage 2 an eighth of them."""
    for fields, share in (({"zero": 1, "batch": 32}, 1), ({"zero": 2, "batch": 8}, 8)):
        state = pb.training_memory(scenario(dp=8, gradient_sync="last", **fields)).walk.state
        assert state["gradients"] == pytest.approx(2 * P / share, rel=1e-3)
