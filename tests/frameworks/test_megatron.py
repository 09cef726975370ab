"""Megatron-LM's accounting: what a layer keeps, the optimizer's table, padding, refusals, a published run."""

import pytest

import playbook as pb
from playbook.frameworks.megatron import POLICY, padded
from playbook.predict.stages import blocks_of, context
from playbook.program.policy import Sizes
from playbook.spec import recipe

GIB = 2**30


def scenario(name="llama-3.1-8b", recipe="bf16-fp32grad", sequence=4096, micro_batch=1, batch=None, **layout):
    work = pb.Workload(sequence=sequence, micro_batch=micro_batch, recipe=recipe, global_batch=batch)
    return pb.Scenario(pb.model(name), work, pb.Layout(**layout), framework="megatron")


def test_a_layer_of_llama_70b_keeps_33_and_a_half_bytes_a_token_and_feature():
    # 2 (input) + 2 (norm) + 2.5 (q, k, v) + 2 (output) + 4 (middle, norm) + 21 (gate, up, product of 3.5·h),
    # and 4 bytes a head of log-sum-exps.
    work = pb.Workload(sequence=8192, micro_batch=1, recipe="bf16-fp32grad")
    block = POLICY.layer(Sizes.of(pb.model("llama-3.1-70b"), work, recipe("bf16-fp32grad")))
    kept = sum(tensor.bytes for tensor in block.tensors if tensor.saved)
    assert kept == 8192 * (33.5 * 8192 + 4 * 64)


@pytest.mark.parametrize(
    ("name", "ranks", "each"),
    [
        ("bf16-fp32grad", 8, 7.5),
        ("bf16-fp32grad", 64, 6.1875),
        ("fp32", 8, 9),
        ("fp32", 64, 8.125),
    ],
)
def test_the_distributed_optimizer_keeps_the_bytes_of_megatrons_table(name, ranks, each):
    """docs/source/api-guide/dist_optimizer.md: 6 + 12/d with FP32 gradients of BF16, 8 + 8/d in FP32."""
    s = scenario("toy-15m", recipe=name, sequence=64, dp=ranks, zero=1)
    terms = pb.training_memory(s).walk.state
    held = sum(terms.get(t, 0) for t in ("parameters", "gradients", "master_weights", "optimizer"))
    numel = terms["parameters"] / s.recipe.parameter_bytes
    assert held / numel == pytest.approx(each, rel=1e-3)


def test_the_vocabulary_is_padded_to_128_times_tp():
    # 32000 = 250·128; with tp=8 the next multiple of 1024 is 32768.
    assert padded(scenario("llama-2-7b")).vocabulary == 32000
    assert padded(scenario("llama-2-7b", tp=8)).vocabulary == 32768


@pytest.mark.parametrize(("tp", "vocabulary"), [(2, 50_432), (4, 50_688)])
def test_a_vocabulary_that_tp_does_not_divide_is_padded_until_it_does(tp, vocabulary):
    """GPT-2's 50257 tokens: the next multiples of 256 and 512."""
    s = scenario("gpt2", sequence=1024, tp=tp)
    assert padded(s).vocabulary == vocabulary
    table = next(weight for block in blocks_of(s, 0, context(s)) for weight in block.weights)
    assert table.shape == (vocabulary // tp, 768)
    assert pb.training_memory(s).peak_bytes > 0


def test_tp_must_divide_the_heads_all_the_same():
    with pytest.raises(ValueError, match="tp=5 does not divide heads=12 of gpt2; tp in 1, 2, 3, 4, 6, 12"):
        scenario("gpt2", sequence=1024, tp=5)


def test_a_padded_table_takes_memory():
    s = scenario("llama-2-7b", tp=8)
    table = next(weight for block in blocks_of(s, 0, context(s)) for weight in block.weights)
    assert table.shape == (32768 // 8, 4096)


def test_sequence_parallelism_keeps_shards_and_one_buffer_to_gather_them_in():
    s = scenario(tp=8, sequence_parallel=True)
    blocks = blocks_of(s, 0, context(s))
    outputs = [t for t in blocks[1].tensors if t.name.startswith("norm output")]
    assert {t.bytes for t in outputs} == {2 * 4096 * 4096 // 8}
    assert [t.bytes for t in blocks[0].tensors if t.name == "gather buffer"] == [2 * 4096 * 4096]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"zero": 2, "dp": 2}, "zero=2.*use zero=1"),
        ({"recipe": "bf16"}, "recipe='bf16'.*use one of bf16-fp32grad"),
        (
            {"name": "mixtral-8x7b", "tp": 2, "sequence": 1024},
            "experts with tp=2 and no sequence parallelism.*use sequence_parallel=True",
        ),
        (
            {"pp": 4, "schedule": "interleaved-1f1b", "chunks": 2, "batch": 9},
            "microbatches=9.*",
        ),
    ],
)
def test_what_megatron_does_not_do_is_refused_with_what_works(given, words):
    with pytest.raises(ValueError, match=words):
        pb.training_memory(scenario(**given))


@pytest.mark.parametrize(
    ("micro_batch", "layout", "measured"),
    [(2, {"dp": 4, "pp": 2, "zero": 1, "batch": 2048}, 49.8), (4, {"tp": 8, "batch": 128}, 28.8)],
    ids=["MBS 2, DP 4, PP 2", "MBS 4, TP 8"],
)
def test_two_runs_of_llama_2_7b_on_eight_h800(micro_batch, layout, measured):
    """Megatron-LM PR 482: 49.8 and 28.8 GB measured, BF16 with FP32 gradients.

    The pull request names no sequence: 2048 tokens is the one at which both agree. Measured is above the
    allocated peak by what the allocator holds beyond it: 4 % and 0.15 GiB fit nanotron's published runs where
    the host is in step.
    """
    s = scenario("llama-2-7b", sequence=2048, micro_batch=micro_batch, **layout)
    assert pb.training_memory(s).peak_bytes * 1.04 == pytest.approx(measured * 1e9, rel=0.015)
