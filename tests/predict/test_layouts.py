"""The derived form against the walk: no difference where shards need no padding."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import playbook as pb
from playbook.predict.layouts import closed_form, values_of, variant
from playbook.spec import cluster
from playbook.tables import TERMS

VARIANTS = st.tuples(
    st.sampled_from(
        [
            ("textbook", "bf16-fp32master"),
            ("torch", "fp32"),
            ("torch", "fsdp2-mixed"),
            ("transformers", "fsdp2-mixed"),
        ]
    ),
    st.booleans(),  # tied
    st.sampled_from(["none", "selective", "full"]),
    st.booleans(),  # reshard
    st.sampled_from([1, 2]),  # tp
    st.integers(1, 3),  # micro-batches
)
SIZES = st.tuples(
    st.sampled_from([1, 2, 4, 8]),  # N
    st.integers(6, 12),  # layers
    st.sampled_from([8, 16, 24]),  # features of a head
    st.sampled_from([4, 8]),  # heads
    st.sampled_from([32, 96, 256]),  # feed-forward features
    st.sampled_from([64, 512, 4096]),  # vocabulary
    st.integers(1, 3),  # sequences
    st.sampled_from([8, 32, 128]),  # tokens
)


def scenario_of(chosen, sizes):
    (framework, recipe), tied, recompute, reshard, tp, microbatches = chosen
    dp, layers, head_dim, heads, ffn, vocabulary, batch, sequence = sizes
    model = pb.Model(
        name="drawn",
        family="llama",
        layers=layers,
        hidden=heads * head_dim,
        heads=heads,
        kv_heads=heads // 2,
        head_dim=head_dim,
        ffn=ffn,
        vocabulary=vocabulary,
        tied=tied,
        max_sequence=128,
    )
    zero = 3 if dp > 1 else 0
    if framework != "textbook" and recipe == "fsdp2-mixed" and dp == 1:
        recipe = "bf16"
    if framework == "transformers" and recompute == "selective":
        recompute = "full"
    work = pb.Workload(
        sequence=sequence,
        micro_batch=batch,
        global_batch=dp * batch * microbatches,
        recipe=recipe,
        recompute=recompute,
    )
    layout = pb.Layout(dp=dp, tp=1 if framework == "transformers" else tp, zero=zero, reshard=reshard)
    return pb.Scenario(model, work, layout, cluster("laptop"), framework=framework)


@settings(max_examples=40, deadline=None)
@given(VARIANTS, SIZES)
def test_forty_shapes_over_the_variants_differ_from_the_walk_by_nothing(chosen, sizes):
    s = scenario_of(chosen, sizes)
    walk = pb.program(s).memory()
    found = closed_form(s).peaks(values_of(s))
    assert found.bytes.tolist() == [walk.peak_bytes]
    assert found.terms.sum() == walk.peak_bytes


@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.parametrize("kernel", ["fused", "foreach", "for-loop"])
def test_the_step_of_an_optimizer_with_masters_is_in_the_derived_form(kernel, tp):
    # Few tokens and a token table larger than any other parameter: the peak is in the optimizer's step.
    s = scenario_of((("torch", "bf16-fp32master"), False, "full", True, tp, 2), (1, 6, 16, 4, 32, 4096, 1, 8))
    s = replace(s, workload=replace(s.workload, optimizer_kernel=kernel))
    walk = pb.program(s).memory()
    assert walk.instant == "O root"
    assert closed_form(s).peaks(values_of(s)).bytes.tolist() == [walk.peak_bytes]


def test_one_derivation_serves_every_size_of_a_variant():
    work = pb.Workload(recipe="fsdp2-mixed", recompute="full")
    forms = {
        id(closed_form(pb.Scenario(pb.model(name), work, pb.Layout(dp=dp, zero=3), framework="transformers")))
        for name, dp in (("llama-3.1-8b", 8), ("llama-3.1-70b", 64), ("llama-3.1-405b", 256))
    }
    assert len(forms) == 1


def test_many_layouts_at_once_are_those_one_by_one():
    work = pb.Workload(recipe="fsdp2-mixed", recompute="full")
    layouts = [pb.Layout(dp=dp, zero=3) for dp in (8, 32, 128)]
    every = [pb.Scenario(pb.model("llama-3.1-70b"), work, one, framework="transformers") for one in layouts]
    values = {**values_of(every[0]), "N": np.array([8, 32, 128])}
    found = closed_form(every[0]).peaks(values)
    assert found.bytes.tolist() == [pb.program(s).memory().peak_bytes for s in every]


def test_padding_is_the_only_difference_and_it_is_small():
    work = pb.Workload(recipe="fsdp2-mixed", recompute="full")
    layout = pb.Layout(dp=24, zero=3)
    s = pb.Scenario(pb.model("llama-3.1-8b"), work, layout, pb.cluster("3x8-h100"), framework="transformers")
    walk, form = pb.program(s).memory().peak_bytes, closed_form(s).peaks(values_of(s)).bytes[0]
    assert 0 < walk / form - 1 < 0.01


def test_seventy_billions_peak_reads_as_a_polynomial():
    work = pb.Workload(recipe="fsdp2-mixed", recompute="full")
    s = pb.Scenario(pb.model("llama-3.1-70b"), work, pb.Layout(dp=64, zero=3), framework="transformers")
    form = closed_form(s)
    row = int(form.peaks(values_of(s)).row[0])
    assert form.labels[row] == "m0/B/layers.-2.mlp/mul#1"
    formulas = form.formula(row, 80)
    # Inputs of 79 layers, two norms of 8h and the attention output's share of the 176·b·s·h.
    assert str(formulas["activations"]).startswith("4·b·s·a·k + 4·b·s·g·k + 6·b·s·f + 174·b·s·h")
    assert formulas["optimizer"].ratio(formulas["parameters"]) == 2
    assert set(formulas) <= set(TERMS)


def test_a_pipeline_is_refused_with_what_walks_it():
    s = pb.Scenario(pb.model("toy-15m"), pb.Workload(sequence=64), pb.Layout(pp=2))
    with pytest.raises(ValueError, match="use pp=1, or training_memory"):
        closed_form(s)


def test_few_layers_are_refused_because_the_ends_would_overlap():
    s = scenario_of((("torch", "fp32"), True, "full", False, 2, 3), (4, 5, 16, 8, 96, 512, 2, 32))
    with pytest.raises(ValueError, match="L=5 layers; the derived form holds from 6 on"):
        closed_form(s).peaks(values_of(s))


def test_the_variant_keeps_what_changes_the_rows():
    s = scenario_of((("torch", "fp32"), True, "full", False, 2, 3), (4, 9, 16, 8, 96, 512, 2, 32))
    small = variant(s)
    assert (small.framework, small.model.tied, small.workload.recompute) == ("torch", True, "full")
    assert (small.layout.reshard, small.layout.zero, small.microbatches) == (False, 3, 3)


KINDS = ("mixtral-8x7b", "deepseek-v2-lite", "deepseek-v3", "gemma-2-2b", "olmo-2-7b", "gpt-oss-120b")


@pytest.mark.parametrize(
    ("degrees", "recompute"), [({"dp": 8, "zero": 3}, "full"), ({"dp": 2, "tp": 2, "zero": 1}, "none")]
)
@pytest.mark.parametrize("name", KINDS)
def test_experts_latents_and_dense_layers_in_front_have_a_derived_form_too(name, degrees, recompute):
    """One or three dense layers stand before those with experts in DeepSeek's models."""
    layout = pb.Layout(**degrees)
    work = pb.Workload(
        sequence=2048, global_batch=2 * layout.dp, recipe="bf16-fp32master", recompute=recompute
    )
    s = pb.Scenario(pb.model(name), work, layout, framework="textbook")
    peaks = closed_form(s).peaks(values_of(s))
    assert peaks.bytes[0] == pytest.approx(pb.training_memory(s).peak_bytes, rel=1e-9)


def test_hugging_faces_experts_have_a_derived_form_up_to_the_padding_of_shards():
    layout = pb.Layout(dp=8, zero=3)
    work = pb.Workload(sequence=2048, recipe="fsdp2-mixed")
    s = pb.Scenario(pb.model("qwen3-30b-a3b"), work, layout, framework="transformers")
    peaks = closed_form(s).peaks(values_of(s))
    assert peaks.bytes[0] == pytest.approx(pb.training_memory(s).peak_bytes, rel=1e-6)


def test_dense_layers_among_those_with_experts_are_refused_with_what_walks_them():
    s = pb.Scenario(pb.model("llama-4-maverick-text"), pb.Workload(sequence=2048), framework="textbook")
    with pytest.raises(ValueError, match="llama-4-maverick-text.*dense layers among.*use training_memory"):
        closed_form(s)
